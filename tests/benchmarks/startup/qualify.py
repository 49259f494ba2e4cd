"""Which of the repository's scripts begin in a way that trials can share."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.measure.window_stopping import WindowRule
from autotune.protocol.codec import from_plain, to_plain
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.sandbox.workspace import Workspace
from autotune.space.script_settings import script_settings_of
from autotune.spec import SearchSpec
from autotune.study.jobs import Jobs
from autotune.study.target import open_target
from tests.integration.shapes.shapes import SHAPES
from tests.jobs import changed

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 180.0
"""Longest start of a script here: the studies make their data first."""
BRIEF = WindowRule(half_width_ratio=0.9, min_window_s=0.1, max_window_s=0.5)
OF_A_GPU = ("gpt2", "resnet50")
"""Studies of which a CPU makes no step in minutes."""
NONE = "none"
"""The start of a script that was not tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A training script of the repository."""

    name: str
    folder: Path | None = None
    """With the script and all that it reads; None where the files are texts."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Files by their names."""
    arguments: tuple[str, ...]
    """What follows the interpreter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """How a trial of a script started."""

    name: str
    start: str
    reason: str
    saved_s: float


def scripts(device: str = "cpu") -> Iterator[Script]:
    """Every shape of the tests that is one process, the benchmarks' jobs, and the studies that the device can train."""
    for shape in SHAPES:
        if shape.num_processes == 1:
            yield Script(name=shape.name, texts=shape.texts(), arguments=shape.command())
    left_out = OF_A_GPU if device == "cpu" else ()
    studies = [path for path in sorted(ROOT.glob("studies/*/train.py")) if path.parent.name not in left_out]
    for script in (*sorted(ROOT.glob("tests/benchmarks/*/*job.py")), *studies):
        arguments = ("forever",) if script.parent.name == "startup" else ()
        yield Script(name=str(script.relative_to(ROOT)), folder=script.parent, arguments=(script.name, *arguments))


def try_script(script: Script, device: str) -> Found:
    """Probes a script in a copy of its folder, and starts a trial of it."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "project")
        _put(script, folder)
        try:
            return _start_of(script, folder, device)
        except AutotuneError as error:
            return _untried(script, str(error))


def _untried(script: Script, reason: str) -> Found:
    return Found(name=script.name, start=NONE, reason=reason, saved_s=0.0)


def _put(script: Script, folder: Path) -> None:
    if script.folder is not None:
        shutil.copytree(script.folder, folder, ignore=shutil.ignore_patterns("__pycache__", "studies", "*.md"))
    for name, text in script.texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _start_of(script: Script, folder: Path, device: str) -> Found:
    """How a trial of the script starts in the quickest way that is sound for it.

    Raises:
        AutotuneError: The script cannot be tuned here.
    """
    command = (sys.executable, *script.arguments)
    spec = SearchSpec(command=command, script=script.name, cwd=str(folder), study="qualify", device=device)
    workspace = Workspace.open(None, cwd=folder, command=command)
    try:
        target = open_target(spec)
        cold, jobs = ColdRunner(workspace, target.device), Jobs(spec=spec, target=target)
        probe = replace(jobs.probe(), start_limit_s=LIMIT_S, total_limit_s=2 * LIMIT_S)
        probed = cold.start(probe).probe_result()
        if probed.facts is None:
            return _untried(script, f"its probe taught nothing: {probed.reason}")
        workspace.probe_is_through()
        script_settings = script_settings_of(probed.facts)
        jobs = replace(jobs, facts=probed.facts, script_settings=script_settings)
        job = changed(jobs.trial(script_settings), window=BRIEF)
        with ForkRunner(cold, probed.facts, least_preparation_s=0.0) as runner:
            result = runner.start(job).result()
        return Found(name=script.name, start=result.start, reason=result.start_reason, saved_s=result.saved_s)
    finally:
        workspace.remove()


def found(path: Path | None, device: str = "cpu", word: str = "") -> list[Found]:
    """How every script starts, told as it goes.

    Args:
        path: A file of lines for what is found: scripts that it has already are not tried again; None = all are.
        device: That they train on: cpu or cuda.
        word: Only those that have it in their names.
    """
    wanted = [script for script in scripts(device) if word in script.name]
    known = [from_plain(Found, json.loads(line)) for line in _lines(path)]
    by_name = {each.name: each for each in known}
    for script in wanted:
        if script.name in by_name:
            continue
        began = time.monotonic()
        each = by_name[script.name] = try_script(script, device)
        print(f"{each.start:>8} {time.monotonic() - began:5.1f} s  {each.name}: {_first_line(each)}", file=sys.stderr)
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps(to_plain(each)) + "\n")
    return [by_name[script.name] for script in wanted]


def _lines(path: Path | None) -> list[str]:
    return path.read_text().splitlines() if path is not None and path.exists() else []


def _first_line(each: Found) -> str:
    return each.reason.replace("|", "/").partition("\n")[0]


def qualify(path: Path | None, device: str = "cpu", word: str = "") -> str:
    """The section on the repository's scripts; arguments as in `found`."""
    everything = found(path, device, word)
    tried = [each for each in everything if each.start != NONE]
    num_prepared = sum(each.start == "prepared" for each in tried)
    return "\n".join(
        [
            "## Scripts that begin in a way that trials can share\n",
            f"{num_prepared} of {len(tried)} scripts that train here; a beginning of any length counts.\n",
            "| script | start | imports and beginning, s | why, or why not |",
            "|---|---|---|---|",
            *(f"| {each.name} | {each.start} | {each.saved_s:.1f} | {_first_line(each)} |" for each in everything),
        ]
    )
