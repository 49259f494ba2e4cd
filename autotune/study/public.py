"""`autotune.search` and `autotune.resume`: the commands of the same names, from Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.model.events import Event
from autotune.model.search_result import SearchResult
from autotune.study import searching
from autotune.study.stop import StopRequest
from autotune.study_file.agreed_values import check_storage_agreed
from autotune.study_file.asked import asked, limits_of
from autotune.study_file.search_options import OPTIONS, Kind
from autotune.study_file.study_toml import resolve_storage

Value = str | int | float | bool


def search(
    script: str | os.PathLike[str] | None = None,
    args: Sequence[str] | None = None,
    *,
    module: str | None = None,
    command: Sequence[str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    nproc_per_node: int | None = None,
    study: str | None = None,
    study_file: str | os.PathLike[str] | None = None,
    storage: str | None = None,
    memory_cap: str | None = None,
    trials: int | None = None,
    time: str | float | None = None,
    spend_all: bool = False,
    effective_batch: str | None = None,
    set: Mapping[str, str | Sequence[Value]] | None = None,  # noqa: A002 - as the option is called
    fix: Mapping[str, Value] | None = None,
    map: Mapping[str, str] | None = None,  # noqa: A002 - as the option is called
    samples_per_step: float | None = None,
    take_over: str | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    seed: int | None = None,
    device: str | None = None,
    start: str | None = None,
    share_gpu: bool = False,
    protection: str | None = None,
    unprotected: bool = False,
    network: bool = False,
    allow_batchnorm_accumulation: bool = False,
    writable: Sequence[str | os.PathLike[str]] = (),
    on_event: Callable[[Event], None] | None = None,
    stop: StopRequest | None = None,
) -> SearchResult:
    """The result of a search for the fastest settings of a training script, under a memory cap.

    The script is measured many times for a few seconds, in new processes or live under other settings; files that the
    script writes are thrown away. The best settings go into a tuned config at the path `result.config`.
    `result.document()` is the document of `autotune search --json`. Options without an argument come from AUTOTUNE_*
    variables, then from `study.toml`, then from the defaults. An interrupt (KeyboardInterrupt) ends the running trial;
    finished trials are stored, and `resume` goes on.

    Args:
        script: The training script; relative to `cwd`.
        args: Arguments of the script.
        module: The script as a module, as after `python -m`, in place of `script`.
        command: A whole command, such as `("torchrun", "--nproc-per-node", "2", "train.py")`, in place of `script`.
        cwd: Where the script is started and the study file is looked for; None = the working directory.
        nproc_per_node: Number of processes that train together on this machine, at least 1, started by torchrun.
        study: Name of the study; None = the script's.
        study_file: Read this instead of `study.toml`.
        storage: Database: a path or a URL; None = `studies/autotune.db` below `cwd`.
        memory_cap: Most device memory for training: `16GiB`, or `80%` of the device's total. None = 90 % of what is
            free; on a CPU 80 % of what is available.
        trials: Trials to spend, at least 1, the baseline included; None = no limit but the time.
        time: Longest wall time with probe and finals, in seconds above 0, or text such as `15m`; None = 15 minutes.
            Without `trials`, a search ends earlier when the next minute is expected to gain less than 1 %.
        spend_all: Spend all of the time, even when the next minute is expected to gain less than 1 %.
        effective_batch: `fixed` (the default), `free`, or samples per optimizer step as `64..1024`.
        set: Search only these values: setting or knob -> `a,b,c`, `low..high`, or a sequence.
        fix: Do not search: setting or knob -> value.
        map: Setting or knob -> the matching argument of the script, such as `--workers={}`.
        samples_per_step: Samples per optimizer step over all devices, above 0, for loaders without countable samples.
        take_over: A study with trials that count too if they fit.
        out: Path of the tuned config, `.yaml`, `.toml` or `.json`; None = `autotune.yaml` below `cwd`.
        force: Overwrite whatever is at `out`.
        seed: Of the search, 0 to 4294967295.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        start: `live` to measure several settings in one process of the script, `fresh` for one process for each, `auto`
            (live on a GPU).
        share_gpu: Measure although other processes use the device.
        protection: Protection of the user's files from trials: `auto` (the best permitted by the system), `layers`,
            `landlock` or `none`.
        unprotected: With `auto`, search even if the system permits neither layers nor Landlock.
        network: Let trials use the machine's network; otherwise only the probe does, where layers protect the files.
        allow_batchnorm_accumulation: Split batches although BatchNorm then sees smaller batches.
        writable: Files and folders that trials write for real, relative to `cwd`. All other files stay unchanged.
        on_event: Called with every event of `autotune.model.events`; must not raise.
        stop: Asks for an end from another thread: once after the running trial, twice at once.

    Raises:
        UsageError: An argument is impossible, or the script does not exist (subclasses: StudyExistsError,
            SearchSpaceError, ConfigError of the study file or of `out`).
        NoFeasibleSettingsError: The script under its own settings needs more than all free memory.
        EveryTrialFailedError: The script failed, or never trained.
        StoreError: The database cannot be used.
        HostError: The device does not exist or is in use, or nothing protects the user's files.
        TypeError: `command` was given together with `script`, `module` or `args`.

    Example:
        ```python
        result = autotune.search("train.py", ["--epochs", "90"], time="10m", set={"num_workers": "0..8"})
        print(result.status, result.speedup, result.config)
        ```
    """
    said = dict(locals())
    if command is not None and (script is not None or module is not None or args is not None):
        raise TypeError("command goes without script, module and args")
    flags = {option.name: _flag(option.kind, said[option.name]) for option in OPTIONS if option.in_python}
    here = Path.cwd() if cwd is None else Path(cwd).absolute()
    words = command if command is not None else args
    spec = asked(flags, list(words) if words is not None else None, here).spec
    return searching.search(spec, on_event=on_event or _nobody, stop=stop)


def resume(
    study: str,
    *,
    storage: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
    unprotected: bool = False,
    trials: int | None = None,
    time: str | float | None = None,
    on_event: Callable[[Event], None] | None = None,
    stop: StopRequest | None = None,
) -> SearchResult:
    """The result of a stored study, after more trials under the rest of the budget.

    No finished trial is run again. A finished study gives the same result once more, or goes on under a new limit.

    Args:
        study: Name of the study.
        storage: Database of the study, as for `search`; None = the database in force in `cwd`.
        cwd: Folder of the database and the study file; None = the working directory.
        unprotected: As for `search`.
        trials: New limit of the trials of all runs of the study; None = as before.
        time: New limit of the wall time of all runs of the study, in seconds or as text; None = as before.
        on_event: As for `search`.
        stop: As for `search`.

    Raises:
        StudyNotFoundError: The study does not exist.
        StudyExistsError: Another tuner of this machine is searching the study.
        UsageError: The script, the command or the machine has changed, or a new limit is spent already.
        AutotuneError: As for `search`.
    """
    limits = limits_of({"trials": trials, "time": time})
    here = Path.cwd() if cwd is None else Path(cwd).absolute()
    in_use = resolve_storage(storage, environ=os.environ, cwd=here, check=check_storage_agreed)
    return searching.resume(
        study, storage=in_use, cwd=here, on_event=on_event or _nobody, stop=stop, unprotected=unprotected, **limits
    )


def _nobody(_: Event) -> None:
    """Hears nothing."""


def _flag(kind: Kind, value: Any) -> Any:
    """An argument of `search` as the flag of the command line gives the value; None and empty stay absent."""
    if kind is Kind.TABLE:
        return [f"{key}={_text(item)}" for key, item in (value or {}).items()]
    if kind is Kind.PATHS:
        return [os.fspath(path) for path in value]
    if kind in (Kind.WORDS, Kind.COMMAND):
        return None  # They follow --.
    return value if value is None or kind is Kind.SWITCH else os.fspath(_text(value))


def _text(value: Any) -> Any:
    """A value in the words of the command line; a sequence becomes `a,b,c`."""
    if isinstance(value, (str, os.PathLike)):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence):
        return ",".join(str(_text(item)) for item in value)
    return str(value)
