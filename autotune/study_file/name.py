"""Reads the typed name of a study."""

from __future__ import annotations

import os

from autotune.errors import UsageError


def study_name(typed: str) -> str:
    """The name as text for a database, in every locale.

    Raises:
        UsageError: The typed bytes are not UTF-8.
    """
    try:
        # Under a locale without Unicode the words of a command line come as bytes in disguise.
        return os.fsencode(typed).decode("utf-8")
    except UnicodeEncodeError:
        return typed
    except UnicodeDecodeError as error:
        raise UsageError(f"{typed!a} cannot be the name of a study.", "Give a name in UTF-8 with --study.") from error
