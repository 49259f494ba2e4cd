"""A search as the command line and `autotune.search` ask for it: resolved here and now, and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.study_file.agreed_values import check_agreed, lies_in
from autotune.study_file.command import check_script
from autotune.study_file.resolve import Resolved, resolve
from autotune.study_file.sources import Origin


def asked(flags: Mapping[str, Any], tail: Sequence[str] | None, cwd: Path) -> Resolved:
    """The search that options, this process's environment and study file together ask for, of a script that is there.

    Args:
        flags: Options by name with underscores, as text; `set`, `fix` and `map` as lists of `KEY=TEXT`.
        tail: Arguments of the script, or a whole command where the flags name no script; None for neither.
        cwd: Where the script is started.

    Raises:
        UsageError: An option is impossible, or there is no such script, or it is not Python; or the study file leads
            out of its folder, and this user has not agreed to that.
        ConfigError: The study file is.
    """
    resolved = resolve(flags, tail, environ=os.environ, cwd=cwd)
    used = {key.partition(".")[0] for key, origin in resolved.origins.items() if origin is Origin.FILE}
    if resolved.file is not None and lies_in(resolved.job.script, resolved.file.path.parent):
        # Arguments for a script of the folder are as good as that script; for any other they are not.
        used -= {"args", "map"}
    check_agreed(resolved.file, used)
    check_script(resolved.job, cwd)
    return resolved
