"""Resolves and checks a search of the command line or of `autotune.search`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.study_file.agreed_values import check_agreed
from autotune.study_file.command import check_script
from autotune.study_file.file_origin import lies_in
from autotune.study_file.resolve import Resolved, resolve
from autotune.study_file.search_options import BY_NAME
from autotune.study_file.sources import Origin, Problems, read_flags


def asked(flags: Mapping[str, Any], tail: Sequence[str] | None, cwd: Path) -> Resolved:
    """The search of options, environment and study file together; the script exists.

    Args:
        flags: Options by name with underscores, as text; `set`, `fix` and `map` as lists of `KEY=TEXT`.
        tail: Arguments of the script, or a whole command without a script among the flags; None for neither.
        cwd: Folder in which the script is started.

    Raises:
        UsageError: An option is impossible, the script does not exist or is not Python, or the study file leads out of
            the file's folder and this user has not agreed.
        ConfigError: A value of the study file is impossible.
    """
    resolved = resolve(flags, tail, environ=os.environ, cwd=cwd)
    used = {key.partition(".")[0] for key, origin in resolved.origins.items() if origin is Origin.FILE}
    if resolved.file is not None and lies_in(resolved.job.script, resolved.file.path.parent):
        # Arguments in the folder give no more power to the folder's own script, but may to a script from elsewhere.
        used -= {"args", "map"}
    check_agreed(resolved.file, used)
    check_script(resolved.job, cwd)
    return resolved


def limits_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The given limits of a resume, by field of SearchSpec.

    Variables and study files count for nothing here: both are about new searches.

    Args:
        flags: Flags by name of the option; only `time` and `trials` are read.

    Raises:
        UsageError: A limit is impossible.
    """
    problems = Problems()
    values = read_flags({name: flags[name] for name in ("time", "trials")}, problems)
    problems.check()
    return {BY_NAME[name].spec_field or name: value for name, value in values.items()}
