"""Scripts run as probe, trial or real training in forked processes, and judged as the runner would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import LossReduction, ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult
from autotune.protocol.codec import from_plain, to_plain
from autotune.protocol.job import Mode
from autotune.protocol.paths import TrialPaths
from autotune.space.derive import derive_space
from autotune.space.script_settings import script_settings_of
from autotune.space.search_space import SearchSpace
from autotune.verdict.judge import Ending, Verdict, judge
from tests.jobs import job_of
from tests.unit.facts import cpu_machine, search_spec

SCRIPTS = Path(__file__).parent / "scripts"
INJECT = Path(__file__).parents[3] / "autotune" / "trial" / "inject"
QUICK = WindowRule(half_width_ratio=0.2, min_blocks=4, min_window_s=0.1, max_window_s=1.5, min_block_s=0.02)
"""Enough to be judged; the figures of such a window are not looked at."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """How one run of a script ended."""

    code: int
    is_timed_out: bool
    wall_s: float
    output: str
    ranks: tuple[RankResult, ...] = ()
    verdict: Verdict | None = None

    @property
    def rank(self) -> RankResult:
        assert self.ranks, f"nothing was reported: {self.output}"
        return self.ranks[0]

    @property
    def outcome(self) -> Outcome:
        assert self.verdict is not None
        return self.verdict.outcome

    @property
    def said(self) -> Any:
        """What a driver script printed as its last line."""
        assert self.code == 0, self.output
        return json.loads(self.output.strip().splitlines()[-1])


class Ground:
    """One server that forks, and a folder for scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_hasty = True
        """Whether trials warm up for a moment only: nobody looks at their figures."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("AUTOTUNE_TRIAL", None)
        self._server = subprocess.Popen(
            [sys.executable, str(SCRIPTS / "forking.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def close(self) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.kill()  # it has nothing to end, and takes seconds to tidy up
        self._server.wait(30.0)
        self._server.stdin.close()
        self._server.stdout.close()

    def script(self, text: str, name: str = "train.py") -> Path:
        """A script of this text, in a folder of its own."""
        folder = self.folder / uuid.uuid4().hex[:8]
        folder.mkdir()
        path = folder / name
        path.write_text(textwrap.dedent(text))
        return path

    def drive(self, script: str, *arguments: str, limit_s: float = 60.0) -> Any:
        """What a driver script of this folder prints as JSON in its last line; nothing is attached beforehand."""
        return self._run(SCRIPTS / script, arguments, {}, limit_s).said

    def probe(self, script: Path, *arguments: str, limit_s: float = 60.0) -> ScriptFacts:
        """Facts of a script; a mean loss is taken for granted."""
        run = self._job(script, arguments, limit_s, mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
        assert not run.is_timed_out, run.output
        assert run.ranks and run.rank.facts is not None, run.output
        return replace(run.rank.facts, loss_reduction=LossReduction.MEAN)

    def trial(
        self, script: Path, facts: ScriptFacts, *arguments: str, limit_s: float = 60.0, job: Any = None, **changes: Any
    ) -> Run:
        """One trial with the script's own settings changed so."""
        script_settings = script_settings_of(facts)
        settings = replace(script_settings, **changes)
        values = {
            "mode": Mode.TRIAL,
            "settings": settings,
            "script_settings": script_settings,
            "facts": facts,
            **(job or {}),
        }
        return self._job(script, arguments, limit_s, **values)

    def split_probe(self, script: Path, facts: ScriptFacts, *arguments: str, num_parts: int) -> RankResult:
        """What one step of a script with its batch in so many parts showed, the loss taken for a mean."""
        script_settings = script_settings_of(facts)
        assert script_settings.batch_size is not None
        settings = replace(
            script_settings, batch_size=script_settings.batch_size // num_parts, grad_accum_steps=num_parts
        )
        facts = replace(facts, loss_reduction=LossReduction.MEAN)
        run = self._job(
            script,
            arguments,
            60.0,
            mode=Mode.SPLIT_PROBE,
            settings=settings,
            script_settings=script_settings,
            facts=facts,
        )
        return run.rank

    def train(
        self, script: Path, facts: ScriptFacts, *arguments: str, limit_s: float = 60.0, job: Any = None, **changes: Any
    ) -> Run:
        """Real training under the script's own settings changed so."""
        script_settings = script_settings_of(facts)
        settings = replace(script_settings, **changes)
        values = {
            "mode": Mode.RUN,
            "settings": settings,
            "script_settings": script_settings,
            "facts": facts,
            **(job or {}),
        }
        return self._job(script, arguments, limit_s, **values)

    def counted(self, script: Path, facts: ScriptFacts, *arguments: str, window_s: float, **changes: Any) -> Run:
        """Real training in a trial's folder, counted for a window."""
        script_settings = script_settings_of(facts)
        values = {
            "mode": Mode.RUN,
            "settings": replace(script_settings, **changes),
            "script_settings": script_settings,
            "facts": facts,
            "window": WindowRule(half_width_ratio=0.05, min_window_s=0.0, max_window_s=window_s),
        }
        return self._job(script, arguments, 60.0, has_folder=True, **values)

    def _job(
        self, script: Path, arguments: tuple[str, ...], limit_s: float, *, has_folder: bool = False, **values: Any
    ) -> Run:
        job = job_of(
            **{
                "command": (sys.executable, str(script), *arguments),
                "cwd": str(script.parent),
                "cap_bytes": 8 << 30,
                "window": QUICK,
                "start_limit_s": limit_s,
                "total_limit_s": limit_s,
                **values,
            }
        )
        plain_job = json.dumps(to_plain(job))
        if job.mode is Mode.RUN and not has_folder:
            return self._run(script, arguments, {"AUTOTUNE_JOB": plain_job}, limit_s)
        paths = TrialPaths(self.folder / "trials" / uuid.uuid4().hex[:8])
        paths.results.mkdir(parents=True)
        paths.job.write_text(plain_job)
        environment = {"AUTOTUNE_TRIAL": str(paths.folder), "AUTOTUNE_STARTED_AT": repr(time.monotonic())}
        run = self._run(script, arguments, environment, limit_s)
        reports = [json.loads(path.read_text()) for path in sorted(paths.results.glob("rank-*.json"))]
        ranks = tuple(from_plain(RankResult, report) for report in reports)
        verdict = None
        if job.mode in (Mode.TRIAL, Mode.RUN):
            signum = -run.code if run.code < 0 and not run.is_timed_out else None
            ending = Ending(exit_code=run.code, signal=signum, is_total_overrun=run.is_timed_out, wall_s=run.wall_s)
            verdict = judge(job, ending, ranks)
        return replace(run, ranks=ranks, verdict=verdict)

    def _run(self, script: Path, arguments: tuple[str, ...], environment: dict[str, str], limit_s: float) -> Run:
        log = self.folder / f"{uuid.uuid4().hex[:8]}.log"
        request = {
            "script": str(script),
            "arguments": list(arguments),
            "cwd": str(self.folder if script.parent == SCRIPTS else script.parent),
            "environment": {
                "PYTHONPATH": os.pathsep.join(filter(None, [str(INJECT), os.environ.get("PYTHONPATH", "")])),
                **environment,
            },
            "log": str(log),
            "is_hasty": self.is_hasty,
            "limit_s": limit_s,
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        reply = json.loads(self._server.stdout.readline())
        return Run(output=log.read_text(errors="replace"), **reply)


def space_of(facts: ScriptFacts, **wishes: Any) -> SearchSpace:
    """The search space of a script on a CPU with eight cores."""
    return derive_space(facts, cpu_machine(cpus=8), search_spec(**wishes))
