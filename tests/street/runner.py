"""Runs a row: the search, and after it the script, `autotune run` and the expert's line in turns."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import autotune
from autotune.lab.recording import commit_in
from tests.street.script import PROCESSES, Data, Device, Script
from tests.street.watch import Limits, Watched, end_tree, watch

REPOSITORY_ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "MPLBACKEND": "Agg",
    "TOKENIZERS_PARALLELISM": "false",
    "YOLO_OFFLINE": "true",
    "COLUMNS": "200",
}
"""Environment of every command of a row: nothing is fetched, and a printed line comes at once."""
COLOURS = {"FORCE_COLOR": "1"}
"""Environment of counted runs: rich draws no progress bar into a pipe otherwise."""
OUTCOMES = {"improved": "tuned", "baseline_infeasible": "tuned", "no_gain": "no gain", "too_short": "too short"}
"""Outcomes by the status of a search."""
SEARCH_MARGIN_S = 180.0
"""Seconds beyond the limit after which a search counts as hung, and is ended."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How rows are run."""

    checkouts: Path
    work: Path
    """Folder for copies, data and logs."""
    time: str = "3m"
    """The `--time` of `autotune search`."""
    rounds: int = 2
    """Turns of script, `autotune run` and expert; 0 = the search alone."""
    limits: Limits = field(default_factory=Limits)
    gpus: str = ""
    """CUDA_VISIBLE_DEVICES of all commands; empty = unchanged."""
    options: tuple[str, ...] = ()
    """More options of `autotune search`."""
    is_bare: bool = False
    """True runs the script and the expert's line without a search, to check the row itself."""

    @property
    def search_limit_s(self) -> float:
        """Longest duration of a search, in seconds."""
        number, unit = re.fullmatch(r"([\d.]+)([smh])", self.time).groups()  # type: ignore[union-attr]
        return float(number) * {"s": 1, "m": 60, "h": 3600}[unit] * 1.5 + SEARCH_MARGIN_S


class Place:
    """Folders, arguments and environment of a row on a device."""

    def __init__(self, script: Script, device: Device, plan: Plan) -> None:
        self.script, self.device, self.plan = script, device, plan
        self.home = plan.work / "rows" / f"{script.name}-{device}"
        self.copy = self.home / "repository"
        self.cwd = (self.copy / script.folder).resolve()
        self.made = script.data_on(device)
        self.data = plan.work / "data" / (self.made.name if self.made else "none")
        self.config = self.home / "autotune.yaml"
        self.logs = plan.work / "logs" / f"{script.name}-{device}"

    def lay_out(self) -> float:
        """Copies the checkout and makes missing data; gives the seconds spent."""
        started = time.monotonic()
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        source = self.plan.checkouts / self.script.source.folder
        shutil.copytree(source, self.copy, symlinks=True)
        self.cwd.mkdir(parents=True, exist_ok=True)
        make_data(self.made, self.data)
        for inside, wanted in self.script.links.items():
            link = self.copy / inside
            link.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                link.unlink() if link.is_symlink() or link.is_file() else shutil.rmtree(link)
            link.symlink_to(self.data / wanted)
        for folder in self.script.folders:
            (self.copy / folder).mkdir(parents=True, exist_ok=True)
        return time.monotonic() - started

    def filled(self, text: str) -> str:
        """The text with placeholders filled."""
        cores = max(1, len(os.sched_getaffinity(0)) // PROCESSES[self.device])
        values = {"data": self.data, "out": self.home / "out", "repository": self.copy, "cores": cores}
        values["stand_ins"] = Path(__file__).parent / "stand_ins"
        values["gpu"] = self.plan.gpus.split(",")[0] or "0"
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", str(value))
        return text

    def words(self, typed: str) -> list[str]:
        """Arguments with placeholders filled."""
        return shlex.split(self.filled(typed))

    def command(self, typed: str) -> list[str]:
        """The command of a user for the script."""
        launcher = shlex.split(self.filled(self.script.launcher.get(self.device, sys.executable)))
        return [*launcher, self.script.script, *self.words(typed)]

    def autotuned(self, verb: str, options: list[str], typed: str) -> list[str]:
        """An `autotune` command over the script."""
        head = [sys.executable, "-m", "autotune", verb, *options]
        if self.device in self.script.launcher:
            return [*head, "--", *self.command(typed)]
        return [*head, self.script.script, "--", *self.words(typed)]

    def environ(self) -> dict[str, str]:
        """The environment of all commands of the row."""
        own = {key: self.filled(value) for key, value in self.script.environment.items()}
        paths = [own.pop("PYTHONPATH", ""), str(REPOSITORY_ROOT), os.environ.get("PYTHONPATH", "")]
        path = os.pathsep.join(filter(None, paths))
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        there = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "PATH": tools, "HF_HOME": str(self.plan.work / "hf")}
        if self.device == "cpu":
            there["CUDA_VISIBLE_DEVICES"] = ""
        elif self.plan.gpus:
            there["CUDA_VISIBLE_DEVICES"] = ",".join(self.plan.gpus.split(",")[: PROCESSES[self.device]])
        return {**there, **own}

    def empty_out(self) -> None:
        """Empties the script's output folder: no run must go on from an earlier run's checkpoint."""
        shutil.rmtree(self.home / "out", ignore_errors=True)


def make_data(data: Data | None, folder: Path) -> None:
    """Fills the folder with the data, once; unfinished data is made anew."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder.with_name(f"{folder.name}.done")
    if data is None or done.exists():
        return
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            data.make(folder)
            done.touch()


@dataclass(kw_only=True)
class Searched:
    """What one search said."""

    exit_code: int | None
    """None for a search that hung, and was ended from outside."""
    wall_s: float
    events: list[dict[str, Any]]
    said: str
    """The whole standard error."""

    @property
    def result(self) -> dict[str, Any]:
        """The document of the result; empty after a failure."""
        return next((event for event in reversed(self.events) if event.get("event") == "result"), {})


def search(place: Place) -> Searched:
    """Runs `autotune search` on the unedited script."""
    options = ["--jsonl", "--time", place.plan.time, "--out", str(place.config), "--force"]
    options += ["--storage", str(place.home / "studies.db"), "--study", place.script.name]
    options += place.plan.options
    command = place.autotuned("search", options, place.script.arguments[place.device])
    out, err = place.logs / "search.jsonl", place.logs / "search.err"
    (place.logs / "search.cmd").write_text(f"cd {place.cwd}; {shlex.join(command)}\n")
    started = time.monotonic()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen(
            command, cwd=place.cwd, env=place.environ(), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            start_new_session=True,
        )  # fmt: skip
        try:
            exit_code: int | None = child.wait(place.plan.search_limit_s)
        except subprocess.TimeoutExpired:
            exit_code = None
        finally:
            end_tree(child)
    wall_s = time.monotonic() - started
    return Searched(exit_code=exit_code, wall_s=wall_s, events=_events(out), said=err.read_text(errors="replace"))


def _events(path: Path) -> list[dict[str, Any]]:
    """The events of a search, without a last line cut off in the middle."""
    events = []
    for line in path.read_text(errors="replace").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            if isinstance(event, dict):
                events.append(event)
    return events


def run_row(script: Script, device: Device, plan: Plan, keep: Callable[[dict[str, Any]], None]) -> None:
    """Runs a row and keeps the resulting line, without a judgement.

    The line is kept after the search and after each turn too, marked `is_partial`, for the case of a sudden end.
    """
    place = Place(script, device, plan)
    line: dict[str, Any] = {"script": script.name, "device": device, "kind": script.kind, "time": plan.time}
    line |= {"repository": script.source.repository, "commit": script.source.commit}
    line["arguments"] = script.arguments[device]
    line["autotune"] = tuner_commit()
    line["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        line["data_s"] = round(place.lay_out(), 1)
    except Exception as error:
        return keep({**line, "outcome": "not run", "why": f"{type(error).__name__}: {error}"})
    missing = absent(script)
    if missing:
        return keep({**line, "outcome": "not run", "why": f"not installed: {', '.join(missing)}"})
    place.empty_out()
    line |= {"outcome": "bare"} if plan.is_bare else facts_of(search(place), script)
    for turns in in_turns(place, line["outcome"], settle_s=settle_s(line, num_ranks=PROCESSES[device])):
        keep({**line, **turns, "is_partial": True})
        line |= turns
    return keep(line)


def tuner_commit() -> str:
    """The commit of autotune; in a copy without a repository, the version."""
    return commit_in(REPOSITORY_ROOT)[:8] or autotune.__version__


def absent(script: Script) -> list[str]:
    """Modules needed by the script and missing in this Python."""
    from importlib.util import find_spec

    return [name for name in script.packages if find_spec(name) is None]


def facts_of(searched: Searched, script: Script) -> dict[str, Any]:
    """The facts of a search, as plain values."""
    result = searched.result
    speedup = result.get("speedup") or {}
    best, baseline = result.get("best") or {}, result.get("baseline") or {}
    return {
        "outcome": outcome(searched, script),
        "exit_code": searched.exit_code,
        "status": result.get("status"),
        "reason": result.get("reason"),
        "trials": (result.get("trials") or {}).get("total", 0),
        "trial_outcomes": [trial_words(event) for event in named(searched.events, "trial_finished")],
        "finals": [final_words(event) for event in named(searched.events, "final_finished")],
        "search_s": round(searched.wall_s, 1),
        "phases_s": phases(searched.events),
        "claimed": speedup.get("ratio"),
        "claimed_low": speedup.get("low"),
        "claimed_high": speedup.get("high"),
        "claimed_rates": [baseline.get("samples_per_second"), best.get("samples_per_second")],
        "unit": result.get("samples_unit"),
        "settings": changed(baseline.get("settings") or {}, best.get("settings") or {}),
        "left_out": left_out(searched),
        "notes": result.get("notes") or [],
        "stderr_tail": searched.said.splitlines()[-12:],
    }


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The events of one name."""
    return [event for event in events if event.get("event") == name]


def trial_words(event: Mapping[str, Any]) -> dict[str, Any]:
    """The results' part of a finished trial."""
    keys = ("number", "outcome", "reason", "samples_per_second", "wall_s", "start", "start_reason", "durations_s")
    return {key: event.get(key) for key in (*keys, "settings")}


def final_words(event: Mapping[str, Any]) -> dict[str, Any]:
    """The results' part of a run of the finals."""
    return {key: event.get(key) for key in ("round", "number", "outcome", "reason", "samples_per_second", "wall_s")}


def outcome(searched: Searched, script: Script) -> str:
    """`tuned`, `no gain`, `too short`, `refused`, `failed` or `hung`."""
    if searched.exit_code is None:
        return "hung"
    status = searched.result.get("status")
    if searched.exit_code in (0, 7) and status in OUTCOMES:
        return OUTCOMES[status]
    if script.refusal and re.search(script.refusal, searched.said):
        return "refused"
    return "failed"


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with a new value, and the new values."""
    return {key: value for key, value in after.items() if before.get(key) != value}


def left_out(searched: Searched) -> list[str]:
    """Sentences of the search about settings left out; a sentence broken over lines is joined."""
    joined = re.sub(r"\n {8,}(?=\S)", " ", searched.said)
    found = re.findall(r"(?m)^\s*(?:note: |warning: )?(.*left out.*)$", joined)
    return list(dict.fromkeys(line.strip() for line in found))


def phases(events: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of the probe, the trials and the finals."""
    probe = sum(event.get("wall_s") or 0.0 for event in named(events, "probe_finished"))
    trials = sum(event.get("wall_s") or 0.0 for event in named(events, "trial_finished"))
    finals = sum(event.get("wall_s") or 0.0 for event in named(events, "final_finished"))
    return {"probe": round(probe, 1), "trials": round(trials, 1), "finals": round(finals, 1)}


BUILD_SETTLE_S = 30.0
"""Left out of a run that compiles its model: graphs are built and recorded after the first step too."""
STOCK_FACTOR = 4.0
"""Seconds left out for each second that a loader's stock would last. Workers fill their queues while the first steps
run, and the training then runs faster than the loader until the queues are empty. UNet's 64 workers hold 10 s of images
at the loader's rate; the first 25 s of a run counted 69 images per second, and a trial's window after 8 s more 52."""
LONGEST_SETTLE_S = 60.0
"""Most seconds left out of a run."""


def settle_s(line: Mapping[str, Any], *, num_ranks: int = 1) -> float:
    """Seconds of every run to leave out before counting, by the line of a search.

    Compilation and the batches in a loader's queues are no steady rate. All contenders settle equally long.

    Args:
        line: The result of the search, as plain values.
        num_ranks: Processes that train, each with a loader of its own.
    """
    trials = line.get("trial_outcomes") or [{}]
    own = trials[0].get("settings") or {}
    tuned = {**own, **(line.get("settings") or {})}
    rates = line.get("claimed_rates") or [None, None]
    stocks_s = [_stock_s(own, rates[0] or trials[0].get("samples_per_second")), _stock_s(tuned, rates[1])]
    needed_s = max(STOCK_FACTOR * num_ranks * max(stocks_s), BUILD_SETTLE_S if tuned.get("compile") else 0.0)
    return min(needed_s, LONGEST_SETTLE_S)


def _stock_s(settings: Mapping[str, Any], rate: float | None) -> float:
    """How long the full queues of a loader's workers would last, in seconds; 0 where something is unknown."""
    sizes = [settings.get(name) or 0 for name in ("num_workers", "prefetch_factor", "batch_size")]
    return math.prod(sizes) / rate if rate else 0.0


def in_turns(place: Place, found: str, *, settle_s: float = 0.0) -> Iterator[dict[str, Any]]:
    """Rates of the script, of `autotune run` and of the expert's line, after each turn; one turn after a failure.

    Args:
        place: Where the row runs.
        found: Outcome of the search.
        settle_s: Least seconds of every run to leave out before counting.
    """
    typed, script = place.script.arguments[place.device], place.script
    limits = place.plan.limits.of(script, settle_s)
    contenders = {"script": place.command(typed)}
    if found in ("tuned", "no gain") and place.config.exists():
        contenders["run"] = place.autotuned("run", ["--config", str(place.config)], typed)
    expert = script.expert_on(place.device)
    if expert is not None:
        contenders["expert"] = place.command(expert)
    progress = script.progress_on(place.device)
    yield {"uncounted": script.no_progress} if progress is None else {}
    if found == "refused" or progress is None:
        return
    rounds = place.plan.rounds if found in ("tuned", "no gain", "bare") else min(1, place.plan.rounds)
    seen: dict[str, list[Watched]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, command in contenders.items():
            place.empty_out()
            watched = watch(
                command, cwd=place.cwd, environ=place.environ() | COLOURS, progress=progress,
                limits=limits,
                log=place.logs / f"{name}-{number}.log",
            )  # fmt: skip
            seen[name].append(watched)
        yield rates(seen)


def rates(seen: Mapping[str, list[Watched]]) -> dict[str, Any]:
    """Rates by contender, ratios to the script by rounds and together, and the last words of silent contenders."""
    of_script = next((one.epoch_length for one in seen["script"] if one.epoch_length), None)
    found = {name: [in_its_batches(one, of_script) for one in runs] for name, runs in seen.items()}
    line: dict[str, Any] = {"rates": found}
    line["first_s"] = {name: [_rounded(one.first_s) for one in runs] for name, runs in seen.items()}
    line["longest_gap_s"] = {name: [_rounded(one.longest_gap_s) for one in runs] for name, runs in seen.items()}
    for name, key in (("run", "real"), ("expert", "expert")):
        pairs = [(one, its) for one, its in zip(found.get(name, ()), found["script"], strict=False) if one and its]
        if pairs:
            line[key] = sum(one for one, _ in pairs) / sum(its for _, its in pairs)
            line[f"{key}_rounds"] = [one / its for one, its in pairs]
    line["silent"] = {name: list(runs[0].tail[-12:]) for name, runs in seen.items() if runs and runs[0].rate is None}
    return line


def in_its_batches(watched: Watched, of_script: float | None) -> float | None:
    """The rate of a run in samples per second, also where the run counts smaller batches than the script.

    Args:
        watched: A run. With batches of half the size its epochs have twice the length.
        of_script: Length of an epoch of the script; None where its output does not tell.
    """
    if watched.rate is None or of_script is None or not watched.epoch_length:
        return watched.rate
    return watched.rate * of_script / watched.epoch_length


def _rounded(value: float | None) -> float | None:
    """The value to one decimal."""
    return None if value is None else round(value, 1)
