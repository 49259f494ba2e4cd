"""Verifies the published ratio of a finished study: the script and `autotune run` in turns, for real.

Both sides are real training in a fresh process, counted by `autotune.trial.counted_run` in the same way: the script
itself is a run with nothing applied. The runs stay in the sandbox, so nothing of the user's is changed. A probe comes
first, and prepares downloads and caches as in a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import autotune
from autotune.emit.formats import kind_of
from autotune.emit.tuned_config import Verified, config_text, read_config
from autotune.emit.writing import write_config
from autotune.errors import ConfigError, EveryTrialFailedError, StoreError, UsageError
from autotune.measure.paired import Final, compare, round_order
from autotune.measure.window_stopping import SCREENING_HALF_WIDTH_RATIO, WindowRule
from autotune.model.events import FinalFinished, FinalsStarted, FinalStarted, OnEvent
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Contender, SearchResult, Status
from autotune.model.verification import Turn, Verification
from autotune.protocol.job import Mode, TrialJob
from autotune.runner.open_runner import RunnerFactory, open_runner
from autotune.runner.opened_workspace import open_workspace
from autotune.runner.quiet_wait import QuietWait
from autotune.runner.runner import Runner
from autotune.sandbox.workspace import Workspace
from autotune.settings import Settings
from autotune.store.records import Owner, StudyRecord
from autotune.store.secrets import mask_text
from autotune.study.jobs import Jobs
from autotune.study.probing import probe
from autotune.study.progress import ProgressTeller
from autotune.study.protection_record import wish_of
from autotune.study.repeats import Repeats
from autotune.study.searching import open_repository, stored_for_runs
from autotune.study.status import is_final
from autotune.study.stop import StopRequest, wait_for
from autotune.study.stored_study import StoredStudy
from autotune.verdict.skipped_steps import own_skipped_share

DEFAULT_PAIRS, DEFAULT_SECONDS = 3, 30.0
WINDOW_PATIENCE = 3.0
"""Longest time from the first step to the end of the window, as a multiple of the window: settling, ends of epochs."""


def verify(
    study: str,
    *,
    storage: str,
    cwd: Path,
    num_pairs: int = DEFAULT_PAIRS,
    window_s: float = DEFAULT_SECONDS,
    on_event: OnEvent,
    stop: StopRequest | None = None,
    unprotected: bool = False,
    open_runner: RunnerFactory = open_runner,
) -> tuple[SearchResult, bool]:
    """The result of a study with a new verification at its end, stored; and whether the tuned config has it too.

    The config gets the verification only if the file is as the search wrote it.

    Args:
        study: Name of the study.
        storage: Database of the study.
        cwd: Working directory, for a relative path of the database.
        num_pairs: Runs of each side, at least 2.
        window_s: Counted seconds of a run, at least 1.
        on_event: Receives every event.
        stop: Ends the verification early.
        unprotected: Run without layers and Landlock; the study may allow the same.
        open_runner: Builds the runners; a simulation hands in another factory.

    Raises:
        UsageError: The study has no gain to verify, the script or the machine has changed, or a number is out of range.
        EveryTrialFailedError: A run could not be measured.
        InterruptedError: The user asked to stop.
    """
    if num_pairs < 2 or not 1 <= window_s < math.inf:
        raise UsageError(
            f"A verification of {num_pairs} pairs of {window_s:g} s says nothing.",
            "Give --pairs 2 or more, and --seconds 1 or more.",
        )
    with open_repository(storage, cwd, on_event, must_exist=True) as repository:
        record = repository.study(study)
        result = _with_gain(record)
        stored = stored_for_runs(record, repository, unprotected=unprotected)
        owner = Owner.this_process()
        repository.acquire_lease(study, owner, now=datetime.now(UTC))
        try:
            stop = stop or StopRequest(saves=False)
            turns = _Turns(stored, result, owner, window_s, on_event, stop, open_runner).run(num_pairs)
            assert result.speedup is not None
            verification = Verification(
                claimed=result.speedup,
                real=_ratio(turns),
                window_s=window_s,
                turns=turns,
                at=datetime.now(UTC).isoformat(timespec="seconds"),
                autotune=autotune.__version__,
            )
            result = replace(result, verifications=(*result.verifications, verification))
            repository.set_status(study, result.status.value, result.document())
        finally:
            with suppress(StoreError):
                repository.release_lease(study, owner)
    return result, note_in_config(record, result)


def _with_gain(record: StudyRecord) -> SearchResult:
    """The result of a study with a published gain.

    Raises:
        UsageError: The study has not ended, or claims no gain.
    """
    if not is_final(record) or record.result is None:
        hint = f"Go on with it: autotune resume {record.name}"
        raise UsageError(f"Study {record.name!r} ({record.status}) has published nothing yet.", hint)
    result = SearchResult.from_document(record.result)
    if result.status is not Status.IMPROVED or result.speedup is None or result.best is None:
        words = record.status.replace("_", " ")
        raise UsageError(
            f"Study {record.name!r} ({words}) claims no gain, so there is nothing to verify.",
            "Search again with more --time, or on a quiet machine.",
        )
    return result


class _Turns:
    """The counted runs of a verification, under the lease of this process."""

    def __init__(
        self,
        stored: StoredStudy,
        result: SearchResult,
        owner: Owner,
        window_s: float,
        on_event: OnEvent,
        stop: StopRequest,
        open_runner: RunnerFactory,
    ) -> None:
        assert result.best is not None and stored.record.script_settings is not None
        self._stored, self._result, self._owner, self._window_s = stored, result, owner, window_s
        self._on_event, self._stop, self._open_runner = on_event, stop, open_runner
        self._progress = ProgressTeller(on_event)
        own = Contender(
            trial=0,
            settings=stored.record.script_settings,
            feasible=True,
            samples_per_second=None,
            interval=None,
            peak_memory_bytes=None,
        )
        self._sides = (result.baseline or own, result.best)

    def run(self, num_pairs: int) -> tuple[Turn, ...]:
        """Probes the script, then runs the pairs; each pair in random order.

        Raises:
            EveryTrialFailedError: A run could not be measured.
            InterruptedError: The user asked to stop.
        """
        spec = self._stored.spec
        workspace = open_workspace(cwd=Path(spec.cwd), command=spec.command, wish=wish_of(spec))
        try:
            return self._run_in(workspace, num_pairs)
        finally:
            workspace.remove()

    def _run_in(self, workspace: Workspace, num_pairs: int) -> tuple[Turn, ...]:
        spec, facts = self._stored.spec, self._stored.record.facts
        assert facts is not None
        self._stored.go_on(facts, self._on_event)
        target = self._stored.target
        runner = self._open_runner(workspace, target.device)
        probe(spec, target, workspace, runner, self._stop, self._on_event, learns_reduction=False)
        records = self._stored.repository.trials(self._stored.name)
        jobs = Jobs(
            spec=spec,
            target=target,
            facts=facts,
            script_settings=self._stored.record.script_settings,
            own_skipped_share=own_skipped_share(records, self._sides[0].trial),
        )
        quiet = QuietWait(target.device, is_shared=spec.share_gpu)
        repeats = Repeats(num_pairs, lambda found: found.disturbances_by_others)
        numbers = tuple(side.trial or 0 for side in self._sides)
        self._on_event(FinalsStarted(numbers=numbers, num_rounds=num_pairs))
        turns: list[Turn] = []
        with closing(self._open_runner(workspace, target.device)) as runner:
            for number in range(num_pairs):
                order = round_order((0, 1), number, spec.seed)
                turns += [self._turn(number, side, jobs, runner, quiet, repeats) for side in order]
        return tuple(turns)

    def _turn(self, number: int, side: int, jobs: Jobs, runner: Runner, quiet: QuietWait, repeats: Repeats) -> Turn:
        contender = self._sides[side]
        self._on_event(FinalStarted(round=number, number=contender.trial or 0))
        job = counted_job(jobs, contender.settings, self._window_s)
        result = repeats.undisturbed(lambda: self._measure(job, runner, quiet), lambda _: not self._stop.level)
        if self._stop.level:
            raise InterruptedError("The verification was asked to stop.")
        self._on_event(FinalFinished(round=number, number=contender.trial or 0, result=result))
        if result.outcome is not Outcome.OK or result.measurement is None:
            whose = "under the tuned settings" if side else "under the script's own settings"
            raise EveryTrialFailedError(
                f"A run {whose} could not be counted: {result.outcome.value}: {result.why}",
                "Look at what the script printed, or give fewer --seconds to a short script.",
            )
        found = result.surroundings
        return Turn(
            round=number,
            is_tuned=bool(side),
            samples_per_second=result.measurement.samples_per_second,
            window_s=result.measurement.window_s,
            disturbances=found.disturbances_by_others if found is not None else (),
        )

    def _measure(self, job: TrialJob, runner: Runner, quiet: QuietWait) -> TrialResult:
        self._progress.waits()
        found = quiet.wait(lambda: bool(self._stop.level))
        with suppress(StoreError):
            self._stored.repository.renew_lease(self._stored.name, self._owner, now=datetime.now(UTC))
        run = runner.start(job)
        wait_for(run, self._stop, now_and_then=lambda: self._progress.look(run))
        result = run.result()
        return found.written_with(replace(result, reason=mask_text(result.reason)))


def counted_job(jobs: Jobs, settings: Settings, window_s: float) -> TrialJob:
    """The job of real training under settings, counted for `window_s` seconds."""
    job = jobs.trial(settings, is_final=True)
    window = WindowRule(half_width_ratio=SCREENING_HALF_WIDTH_RATIO, min_window_s=0.0, max_window_s=window_s)
    return replace(
        job,
        mode=Mode.RUN,
        request=replace(job.request, window=window),
        total_limit_s=job.total_limit_s + WINDOW_PATIENCE * window_s,
    )


def _ratio(turns: Sequence[Turn]) -> tuple[float, float, float]:
    """How many times as fast the tuned settings were, with the interval of `autotune.measure.paired`."""
    finals = [
        Final(
            candidate=int(turn.is_tuned),
            round=turn.round,
            samples_per_second=turn.samples_per_second,
            peak_memory_bytes=0,
            feasible=True,
        )
        for turn in turns
    ]
    found = compare(finals, 1, 0, is_last=True)
    return found.ratio, found.low, found.high


def note_in_config(record: StudyRecord, result: SearchResult) -> bool:
    """Writes the newest verification into the tuned config; True when the file has it now.

    Only a file as the study wrote it is written again: same study, settings and ratio, and not one character changed.
    """
    if result.config is None or result.best is None or not result.verifications:
        return False
    path, verification = Path(record.spec.cwd, result.config), result.verifications[-1]
    try:
        config = read_config(path)
        source = config.provenance
        is_ours = source.study == record.name and config.settings == result.best.settings
        is_ours = is_ours and config.speedup == result.speedup
        if not is_ours or path.read_text(encoding="utf-8") != config_text(config, kind_of(path)):
            return False
        verified = Verified(
            real=verification.real,
            finding=verification.finding,
            num_pairs=verification.num_pairs,
            window_s=verification.window_s,
            at=verification.at,
        )
        write_config(path, replace(config, provenance=replace(source, verified=verified)), force=False)
    except (ConfigError, OSError):
        return False
    return True
