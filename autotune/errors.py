"""The errors a user can cause, each with advice and the exit code of the command line.

AutotuneError 1
├── UsageError 2
│   ├── ConfigError          an unusable tuned config or study file
│   ├── SearchSpaceError     an unsearchable setting or range
│   ├── StudyNotFoundError
│   ├── StudyExistsError
│   └── LeaseLostError       a worker of the service speaks for a lease that is no longer its own
├── NoFeasibleSettingsError 3
├── EveryTrialFailedError 4  also: the script failed, or never trained, in its probe
├── StoreError 5
│   └── SchemaVersionError
└── HostError 6
"""

from __future__ import annotations

from typing import ClassVar


class AutotuneError(Exception):
    """Base of all errors printed to the user without a traceback.

    Args:
        message: One sentence with the name of the thing and its value.
        hint: One sentence of advice; empty only if the message gives the advice.
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
    """A setting is unknown, or its range cannot be searched."""


class StudyNotFoundError(UsageError):
    """The database holds no study of the given name."""


class StudyExistsError(UsageError):
    """A study of the given name exists, or another tuner is searching it."""


class LeaseLostError(UsageError):
    """A worker speaks for a lease that has ended or belongs to another worker."""


class NoFeasibleSettingsError(AutotuneError):
    """Every trial needed more memory than the cap."""

    exit_code = 3


class EveryTrialFailedError(AutotuneError):
    """No trial could be measured, or the script failed before it trained."""

    exit_code = 4


class StoreError(AutotuneError):
    """The database cannot be reached, read or written."""

    exit_code = 5


class SchemaVersionError(StoreError):
    """The database is of another version than this release reads."""


class HostError(AutotuneError):
    """The machine lacks something needed by the search: a device, a right, or room."""

    exit_code = 6
