"""The errors a user can cause, each with what to do and the exit code of the command line.

AutotuneError 1
├── UsageError 2
│   ├── ConfigError          a tuned config or a study file that cannot be used
│   ├── SearchSpaceError     a setting or a range that cannot be searched
│   ├── StudyNotFoundError
│   └── StudyExistsError
├── NoFeasibleSettingsError 3
├── EveryTrialFailedError 4  also: the script failed, or never trained, in its probe
├── StoreError 5
│   └── SchemaVersionError
└── HostError 6
"""

from __future__ import annotations

from typing import ClassVar


class AutotuneError(Exception):
    """Base of all errors that are printed to the user without a traceback.

    Args:
        message: One sentence that names the thing and the value.
        hint: One sentence that says what to do; empty only where the message says that already.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class UsageError(AutotuneError):
    """The command line, a file or a call asks for something impossible."""

    exit_code = 2


class ConfigError(UsageError):
    """A tuned config or a study file cannot be read or does not fit."""


class SearchSpaceError(UsageError):
    """A setting is unknown, or a range of it cannot be searched."""


class StudyNotFoundError(UsageError):
    """The database holds no study of that name."""


class StudyExistsError(UsageError):
    """A study of that name is already there, or is being searched by another tuner."""


class NoFeasibleSettingsError(AutotuneError):
    """Every setting that was tried needs more memory than the cap."""

    exit_code = 3


class EveryTrialFailedError(AutotuneError):
    """No trial could be measured, or the script failed before it trained."""

    exit_code = 4


class StoreError(AutotuneError):
    """The database cannot be reached, read or written."""

    exit_code = 5


class SchemaVersionError(StoreError):
    """The database was written by a newer release."""


class HostError(AutotuneError):
    """The machine lacks what the search needs: a device, a right, or room."""

    exit_code = 6
