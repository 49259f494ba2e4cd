"""Trains studies for 50 steps under every setting, one at a time, and compares the losses with the script's own.

    python -m tests.benchmarks.parity --out parity.json
    python -m tests.benchmarks.parity --studies mlp gpt2 --device cuda --compile

Every setting that the study's space allows is changed alone, to each of its other values; settings that work beside
another setting come with it. One more run without a change tells how much runs differ by themselves. A row has the
largest and the mean relative difference over the steps. Runs share the machine, since nothing is timed. A second call
with the same --out goes on where the first has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.host import usable_cpus
from autotune.model.facts import LossReduction, ScriptFacts
from autotune.protocol.codec import encode
from autotune.protocol.environment import JOB, PYTHONPATH
from autotune.protocol.job import Mode
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.devices import choose_device
from autotune.sandbox.workspace import Workspace
from autotune.settings import BY_NAME, INERT_WITHOUT_WORKERS, SETTINGS, Settings, variables_of
from autotune.space.derive import derive_space
from autotune.space.refusals import why_not_unedited
from autotune.study.jobs import Jobs
from autotune.study.target import make_target
from tests.unit.facts import search_spec

REPOSITORY = Path(__file__).parents[3]
INJECT = REPOSITORY / "autotune" / "trial" / "inject"
BESIDE: dict[str, dict[str, Any]] = {
    "compile_mode": {"compile": True},
    "activation_memory_budget": {"compile": True},
    **{name: {"num_workers": 2} for name in INERT_WITHOUT_WORKERS},
}
"""Settings without effect alone, with the settings that give effect."""
ASKED = (
    *("activation_checkpointing", "multiprocessing_context", "worker_threads", "expandable_segments"),
    "keep_freed_memory",
)
"""Settings that a search tries only where of use, or if asked for."""
BUILT = ("compile", "compile_mode", "activation_memory_budget")
"""Settings of compiled models, compared at all values."""
OWN = "own"
"""The run without a change."""
AGAIN = "own, again"
"""A second run without a change: how much two runs of the study differ by themselves."""
SMALL: dict[str, tuple[str, ...]] = {
    "char_gpt": ("--layers", "2", "--width", "32", "--block-size", "32"),
    "jpeg_cnn": ("--width", "8", "--batch-size", "16"),
}
"""Arguments of studies on a CPU, for runs of seconds."""
LONGEST_RUN_S = 300.0
DETERMINISTIC = {"DETERMINISTIC": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Variables of runs that repeat themselves on CUDA; cuBLAS needs a workspace of its own for that."""
DRIVER = Path(__file__).parent / "losses.py"


class Study:
    """One study after its probe.

    Args:
        name: Folder in studies/.
        args: The command's options.
    """

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self._script, self._args = REPOSITORY / "studies" / name / "train.py", args
        small = SMALL.get(name, ()) if args.device == "cpu" else ()
        command, folder = (sys.executable, str(self._script), *small), self._script.parent
        self._spec = search_spec(command=command, cwd=str(folder), device=args.device, start="fresh", share_gpu=True)
        self._device = choose_device(args.device)
        self._target = make_target(self._spec, self._device)
        self._runner = ColdRunner(Workspace.open(None, cwd=folder, command=command), self._device)
        self._facts = self._probed()
        machine = self._target.machine
        self._space = derive_space(self._facts, machine, self._spec)

    def _probed(self) -> ScriptFacts:
        handle = self._runner.start(Jobs(spec=self._spec, target=self._target).probe())
        handle.wait()
        result = handle.probe_result()
        self._runner.workspace.probe_is_through()
        if result.facts is None:
            sys.exit(f"{result.reason}\n{result.log_tail}")
        return replace(result.facts, loss_reduction=LossReduction.MEAN)

    @property
    def own(self) -> Settings:
        """The script's own settings."""
        return self._space.script_settings

    def changes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each other value of each setting, with the settings that give it effect; the own settings first."""
        yield OWN, {}
        yield AGAIN, {}
        size = self.own.batch_size
        if size is not None and size % 2 == 0:
            yield "batch_size x grad_accum_steps", {"batch_size": size // 2, "grad_accum_steps": 2}
        for setting in SETTINGS:
            num_values = None if setting.name in BUILT else self._args.values
            for value in self._others(setting.name)[:num_values]:
                yield f"{setting.name}={value}", {**BESIDE.get(setting.name, {}), setting.name: value}

    def _others(self, name: str) -> list[Any]:
        """Other values of a setting than the script's own."""
        asked = (*ASKED, *(BUILT if self._args.compile else ()))
        values = BY_NAME[name].domain if name in asked else self._space.allowed.get(name, ())
        return [value for value in values if value != self.own.to_dict()[name]]

    def left_out(self) -> dict[str, str]:
        """Settings without a row, and the reasons."""
        reasons = dict(self._space.refused)
        quiet = "the study has no use for it"
        return {
            one.name: reasons.get(one.name, quiet)
            for one in SETTINGS
            if not self._others(one.name) and one.name not in ("batch_size", "grad_accum_steps")
        }

    def losses(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Losses of the first steps, or the reason for none."""
        settings = Settings.from_dict({**self.own.to_dict(), **changes})
        refused = why_not_unedited(settings, self.own, self._facts)
        if refused:
            return {"refused": "; ".join(refused.values())}
        jobs = Jobs(spec=self._spec, target=self._target, facts=self._facts, script_settings=self.own)
        job = replace(jobs.trial(settings), mode=Mode.RUN)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "losses.json"
            driver = [sys.executable, "-c", DRIVER.read_text(), str(self._args.steps), str(out)]
            environment = {**os.environ, **variables_of(settings, os.environ, self.own), JOB: encode(job)}
            environment[PYTHONPATH] = os.pathsep.join(
                filter(None, [str(INJECT), str(REPOSITORY), os.environ.get(PYTHONPATH, "")])
            )
            environment |= DETERMINISTIC if self._args.deterministic else {}
            if self._device.is_cpu:
                environment["CUDA_VISIBLE_DEVICES"] = ""
            printed = Path(folder) / "output"
            if not ends_in_time([*driver, *job.command[1:]], self._script.parent, environment, printed):
                return {"failed": f"still running after {LONGEST_RUN_S:.0f} s"}
            if not out.exists():
                return {"failed": printed.read_text()[-400:]}
            found = dict(json.loads(out.read_text()))
            return {"failed": "nothing was compiled"} if settings.compile and not found["num_graphs"] else found

    def close(self) -> None:
        """Ends the runner."""
        self._runner.close()


def ends_in_time(command: list[str], folder: Path, environment: dict[str, str], printed: Path) -> bool:
    """Runs a command with its output in a file, and ends all its processes; whether it ended in LONGEST_RUN_S.

    No pipe takes the output: processes that loader workers are forked from outlive the run, and would hold a pipe open.
    """
    with printed.open("w") as output:
        child = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            child.wait(LONGEST_RUN_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return True


def compared(own: list[float], other: list[float]) -> dict[str, float]:
    """Relative differences of two courses of the loss: the largest, the mean, and that of the last ten steps' mean."""
    each = [abs(one - two) / max(abs(one), 1e-12) for one, two in zip(own, other, strict=True)]
    last, last_other = sum(own[-10:]), sum(other[-10:])
    return {
        "largest": max(each),
        "mean": sum(each) / len(each),
        "last_ten": abs(last - last_other) / max(abs(last), 1e-12),
    }


Work = dict[tuple[str, str], "Future[dict[str, Any]]"]
"""Runs under way, by study and change."""


def begun(study: Study, name: str, rows: list[dict[str, Any]], pool: ThreadPoolExecutor) -> Work:
    """Begins the missing runs of a study, the longest ones first."""
    known = {(row["study"], row["change"]) for row in rows}
    missing = [(label, changes) for label, changes in study.changes() if (name, label) not in known]
    missing.sort(key=lambda each: "compile" not in each[1])
    return {(name, label): pool.submit(study.losses, changes) for label, changes in missing}


def collect(work: Work, rows: list[dict[str, Any]], out: Path) -> None:
    """Adds a row for every run, as runs end."""
    labels = {future: label for label, future in work.items()}
    for future in as_completed(labels):
        name, change = labels[future]
        rows.append({"study": name, "change": change, **future.result()})
        print(name, change, {key: rows[-1][key] for key in ("refused", "failed") if key in rows[-1]}, file=sys.stderr)
        out.write_text(json.dumps(rows, indent=1))


def compare(rows: list[dict[str, Any]]) -> None:
    """Adds the differences from the script's own losses to all rows with losses."""
    own = {row["study"]: row["losses"] for row in rows if row["change"] == OWN and "losses" in row}
    for row in rows:
        if "losses" in row and row["study"] in own:
            row.update(compared(own[row["study"]], row["losses"]))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = ["| study | change | largest difference | mean | last ten steps |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        figures = [f"{row[key]:.3%}" for key in ("largest", "mean", "last_ten") if key in row]
        said = row.get("refused") or ("failed" if "failed" in row else "")
        lines.append(f"| {row['study']} | {row['change']} | {' | '.join(figures or [f'left out: {said}', '', ''])} |")
    return "\n".join(lines)


def main() -> int:
    """Compares, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", nargs="+", default=["mlp", "char_gpt", "jpeg_cnn"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--values", type=int, default=2, help="most other values of a setting outside of compilation")
    parser.add_argument("--compile", action="store_true", help="compile on a CPU too, for minutes")
    parser.add_argument(
        "--deterministic", action="store_true", help="by kernels that sum in the same order in every run"
    )
    parser.add_argument("--at-once", type=int, default=max(1, int(usable_cpus() // 2)), help="runs beside each other")
    parser.add_argument("--out", type=Path, default=Path("parity.json"))
    args = parser.parse_args()
    rows = [row for row in json.loads(args.out.read_text()) if "losses" in row] if args.out.exists() else []
    work: Work = {}
    studies: dict[str, Study] = {}
    with ThreadPoolExecutor(args.at_once) as pool:
        for name in args.studies:
            try:
                studies[name] = Study(name, args)
            except SystemExit as failed:  # the other studies go on
                rows.append({"study": name, "change": OWN, "failed": str(failed)})
                continue
            work |= begun(studies[name], name, rows, pool)
        collect(work, rows, args.out)
    for name, study in studies.items():
        rows.extend({"study": name, "change": each, "refused": why} for each, why in study.left_out().items())
        study.close()
    compare(rows)
    order = {name: number for number, name in enumerate(args.studies)}
    rows.sort(key=lambda row: (order.get(row["study"], len(order)), row["change"] != OWN, "refused" in row))
    args.out.write_text(json.dumps(rows, indent=1))
    print(table(rows))
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
