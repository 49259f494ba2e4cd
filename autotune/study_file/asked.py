"""A search as the command line and `autotune.search` ask for it: resolved here and now, and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.study_file.command import check_script
from autotune.study_file.resolve import Resolved, resolve


def asked(flags: Mapping[str, Any], tail: Sequence[str] | None, cwd: Path) -> Resolved:
    """The search that options, this process's environment and study file together ask for, of a script that is there.

    Args:
        flags: Options by name with underscores, as text; `set`, `fix` and `map` as lists of `KEY=TEXT`.
        tail: Arguments of the script, or a whole command where the flags name no script; None for neither.
        cwd: Where the script is started.

    Raises:
        UsageError: An option is impossible, or there is no such script, or it is not Python.
        ConfigError: The study file is.
    """
    resolved = resolve(flags, tail, environ=os.environ, cwd=cwd)
    check_script(resolved.job, cwd)
    return resolved
