"""Keeps account of the time of a search: time spent, time left, and time needed by the finals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.settings import Settings
from autotune.settings.compile_mode import UNCOMPILED, build_of
from autotune.settings.cudnn_benchmark import searched_under
from autotune.study.run_times import LEAST_FINAL_WINDOW_S, RunTimes

NUM_ROUNDS = 3
"""Usual number of rounds in the finals. When time is short, contenders are dropped first, then windows are shortened,
then rounds are left out: the limit of the search holds."""
LEAST_ROUNDS = 2
"""Fewest rounds of a comparison: a single pair of runs has no spread."""
ROUNDS_ALONE = 2
"""Rounds of a single contender: the rate needs an interval but no comparison."""
OVERRUN_SHARE = 0.1
"""Share of the given time by which the finals may pass the limit, in order to complete a round."""
ENDING_SHARE = 0.05
"""Share of the given time for the end of the last run: on a busy machine its processes took 4 s to end."""
MAX_ROUNDS = 40
"""Most rounds of the finals; rounds beyond the usual number come while the answer is open or wide, and time is left."""
NUM_FINALISTS = 3
"""Most trials in the finals beside the baseline: re-measuring more than three gains little (measured)."""
MOST_FINALISTS = 8
"""Most trials in the finals of a noisy machine, where trials do not tell which settings are fastest."""
SHARE_OF_MANY = 0.4
"""Share of the time left for the usual rounds of more than the usual number of finalists: later rounds, with fewer
finalists, tell more."""
TRIALS_PER_FINALIST = 4
"""Trials that a search should have for every finalist: a short search spends its time on trials."""
FINALS_SHARE, NOISY_SHARE = 0.35, 0.5
"""Largest share of the given time kept for more than the fewest rounds of two contenders; on a noisy machine, where
usual rounds decide nothing, the larger share."""
NOISY_ROUNDS = 2 * NUM_ROUNDS
"""Rounds of the finals to keep time for on a noisy machine."""
FINAL_WINDOW_S = 5.0
"""Usual length of a final's window, in seconds; when time is short, windows are shorter."""
CAUTION = 1.5
"""Time kept for finals in new processes while a trial runs, as a multiple of their expected time. Finals of
torchvision's detector on an H100 took 1.44 times as long as expected; a compilation had left time for one round."""
PRICE_SLACK = 1.25
"""Limit of a trial as a multiple of the trial's expected time, where a longer trial would leave the finals less than
CAUTION times the finals' expected time."""
LIMIT_FACTOR = 2.0
"""Least limit of a trial as a multiple of its expected time, where the finals may have to start another process."""
LOOKS_SHARE = 0.2
"""Largest share of the given time kept for the memory of the winner, after the finals."""
LEAST_S_FOR_LOOKS = 300.0
"""Shortest search, in seconds, that keeps time for the memory of the winner. A fifth of two minutes was the time of six
trials of GPT-2 on an H200, and these trials made its settings a tenth faster."""
LOOKS_S = 15.0
"""Expected time of five measurements in a process that has measured, in seconds: switch, warm-up, window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaterFinals:
    """The finals that must follow a final, for the fewest rounds."""

    others_s: float = 0.0
    """Expected time of the finals of other contenders, in seconds."""
    num_alike: int = 0
    """Number of further finals of the same contender."""

    def needed_s(self, run_s: float) -> float:
        """Expected time of these finals in seconds, after a run of the contender that took `run_s` seconds."""
        return self.others_s + self.num_alike * run_s


class Budget:
    """Keeps account of the wall time of a study, over all runs of the study.

    Args:
        total_s: Time given by the user, in seconds.
        spent_s: Time used by earlier runs of the same study, in seconds.
        now: The monotonic clock, in seconds.
        keeps_builds: Whether the trials of the study share the compiler's cache.
    """

    def __init__(
        self,
        total_s: float,
        spent_s: float,
        now: Callable[[], float] = time.monotonic,
        *,
        keeps_builds: bool = False,
    ) -> None:
        self._has_process: Callable[[], bool] | None = None
        """Says whether a process waits that can measure the script's own settings; None where no process serves several
        measurements."""
        self._needs_new_processes = False
        """Whether no process of the script goes on with other settings."""
        self._is_shared = False
        """Whether the finals run in the process of the trials."""
        self._total_s = total_s
        self._now = now
        self._began = now() - spent_s
        self._saved_at = now()
        self.runs = RunTimes(keeps_builds=keeps_builds)
        """Times of the search's runs."""
        self._kept_for: tuple[int, ...] = ()
        self._is_kept_in_process = False
        """Whether only the process that waits can compare these trials in time."""
        self._looks_s = 0.0
        """Time kept for measurements after the finals, in seconds."""
        self._is_noisy, self._num_rivals = False, NUM_FINALISTS
        self.probe_s = 0.0
        """Wall time of the probe of this run of the study, in seconds; 0 without a probe."""

    @property
    def total_s(self) -> float:
        """Time given by the user, in seconds."""
        return self._total_s

    @property
    def spent_s(self) -> float:
        """Wall time spent so far, in seconds, earlier runs included."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Wall time left, in seconds, without the time kept for looks after the finals; never negative."""
        return max(0.0, self._total_s - self.spent_s - self._looks_s)

    @property
    def left_to_finals_s(self) -> float:
        """Wall time left until a running final is ended, in seconds, with the tolerated overrun; never negative."""
        return max(0.0, self._tolerated_s - self._ending_s)

    @property
    def left_to_trials_s(self) -> float:
        """Wall time left to trials in seconds, with the tolerated overrun; never negative.

        After two measured trials the fewest rounds of two contenders are kept for the finals.
        """
        return self._left_beside(self._verified_s())

    def _left_beside(self, finals_s: float) -> float:
        """Wall time left to trials in seconds, with the tolerated overrun, beside so many seconds of finals."""
        kept_s = finals_s if self.runs.num_measured > 1 else 0.0
        return max(0.0, self._tolerated_s - kept_s - self._ending_s)

    def limit_s(self, trial_s: float, *, is_alone: bool = False) -> float:
        """Wall time until a running trial is ended, in seconds; never negative.

        A trial that takes far longer than the trials before, as a first compilation does, is ended rather than left to
        spend the time of the finals, which may take CAUTION times as long as expected. The end of a trial is the end of
        its process, so the finals may have to start another process first. A trial that takes PRICE_SLACK times as long
        as expected may go on, as long as the finals have their expected time.

        Args:
            trial_s: Expected time of the trial, in seconds. The trial may take LIMIT_FACTOR times as long, even if no
                time for another process is left then.
            is_alone: Whether no process can measure both the trial's settings and the script's own. The finals then
                start another process in any case.
        """
        usual_s, cautious_s = (
            self._limit_beside(trial_s, is_alone=is_alone, caution=caution) for caution in (1.0, CAUTION)
        )
        return max(cautious_s, min(usual_s, PRICE_SLACK * trial_s))

    def _limit_beside(self, trial_s: float, *, is_alone: bool, caution: float) -> float:
        """The limit of a trial beside finals that take `caution` times as long as expected, in seconds."""
        limit_s = self._left_beside(self._verified_s(is_alone=True, caution=caution))
        if is_alone:
            return limit_s
        return min(self._left_beside(self._verified_s(caution=caution)), max(limit_s, LIMIT_FACTOR * trial_s))

    def unsaved_s(self) -> float:
        """Wall time since the last call, in seconds: the amount to add to the database."""
        now = self._now()
        elapsed_s, self._saved_at = now - self._saved_at, now
        return elapsed_s

    def keep_for(
        self,
        contenders: Collection[int],
        *,
        is_in_process: bool = False,
        is_noisy: bool = False,
        num_rivals: int = NUM_FINALISTS,
    ) -> None:
        """Keeps the time for the fewest rounds of these trials, and for the usual rounds of more.

        Args:
            contenders: Numbers of the baseline and of the fastest other trial.
            is_in_process: Whether only the process that waits can compare these trials in time. The end of a trial at
                the trial's limit is the end of the process, so a further trial then needs time up to the limit:
                LIMIT_FACTOR times the expected time.
            is_noisy: Whether the rates of trials scatter more than on a quiet machine.
            num_rivals: Number of trials that may be faster than the baseline. Without one, further trials gain more
                than further rounds.
        """
        self._kept_for, self._is_kept_in_process = tuple(contenders), is_in_process
        self._is_noisy, self._num_rivals = is_noisy, num_rivals

    def keep_for_looks(self, number: int, settings: Settings) -> None:
        """Keeps time for the memory of a trial after the finals, in a new process or in the process of shared finals.

        A search shorter than LEAST_S_FOR_LOOKS keeps none, and measures the memory in the time that the finals leave.
        The fewest rounds of two contenders come first too: the tolerated overrun leaves the looks out.

        Args:
            number: Number of the trial.
            settings: Settings of the trial.
        """
        start_s = 0.0 if self.plans_sharing else self.fresh_s(number, settings)
        is_long = self._total_s >= LEAST_S_FOR_LOOKS
        self._looks_s = min(LOOKS_SHARE * self._total_s, start_s + LOOKS_S) if is_long else 0.0

    def fresh_s(self, number: int, settings: Settings) -> float:
        """Expected time of a trial's settings in a new process with the shortest window, in seconds."""
        return self.runs.start_of(number, settings) + LEAST_FINAL_WINDOW_S

    def first_look_s(self, number: int, settings: Settings) -> float:
        """Expected time of the first measurement after the finals, in seconds; shared finals leave a process for it."""
        if self._is_shared:
            return self.runs.shared_start_s + LEAST_FINAL_WINDOW_S
        return self.fresh_s(number, settings)

    def affords_larger_batch(self, settings: Settings) -> bool:
        """Whether a short run with a larger batch, and a trial to compare it with, leave the finals their time.

        A compiled model is built anew for the batch, and the end of a run at its limit is the end of the waiting
        process. The finals then need the time for another process. On an H200 a speaker model was 2.4 times as fast
        compiled, and a larger batch took 39 s: no time was left for the finals.
        """
        build = build_of(settings)
        is_alone = build != UNCOMPILED or not self._process_waits
        kept_s = max(self.reserve_s, self._verified_s(is_alone=is_alone))
        new_s = self.runs.new_size_s(build, is_fresh=not self._process_waits)
        return self.left_s - kept_s >= new_s + self.trial_s(settings)

    def affords_same_batch(self, settings: Settings) -> bool:
        """Whether another trial of settings that were tried before leaves the finals their time."""
        kept_s = max(self.reserve_s, self._verified_s(is_alone=not self._process_waits))
        return self.left_s - kept_s >= self.trial_s(settings)

    def affords_look(self, look_s: float) -> bool:
        """Whether a measurement after the finals ends within the tolerated overrun."""
        return self._tolerated_s - self._ending_s >= look_s

    def allow_sharing(self, has_process: Callable[[], bool]) -> None:
        """Expects that a process of trials can measure finals too when new processes do not fit the time.

        Args:
            has_process: Says whether a process waits that can measure the script's own settings. Without one, the next
                trial starts and builds anew.
        """
        self._has_process = has_process

    def forbid_sharing(self) -> None:
        """Expects a new process for every trial and final from now on: no process of the script can go on."""
        self._has_process, self._needs_new_processes, self._is_shared = None, True, False

    def use_new_processes(self) -> None:
        """Expects finals in new processes again, as before `share_process`."""
        self._is_shared = False

    @property
    def _process_waits(self) -> bool:
        """Whether a process waits that can measure the script's own settings."""
        return self._has_process is not None and self._has_process()

    def share_process(self) -> None:
        """Expects the finals to run in the process of the trials from now on, where one process goes on."""
        self._is_shared = not self._needs_new_processes

    def affords_shared_rounds(self, num_rounds: int, contenders: Collection[int]) -> bool:
        """Whether rounds in the process of the trials, with the shortest windows, end within the tolerated overrun.

        Without a waiting process, a new one starts and builds. Where no process goes on with other settings, every
        final has a new process.
        """
        if self._needs_new_processes:
            return self.left_to_finals_s >= num_rounds * self.round_s(contenders)
        if self._has_process is None:
            return False
        start_s = (
            self.runs.missing_builds_s(contenders) if self._has_process() else self.runs.shared_process_s(contenders)
        )
        return self.left_to_finals_s >= start_s + num_rounds * len(contenders) * self._shared_final_s

    @property
    def _shared_final_s(self) -> float:
        """Expected time of a final in the process of the trials with the shortest window, in seconds."""
        return self.runs.shared_start_s + self.runs.least_window_s

    @property
    def around_s(self) -> float:
        """Median time of a fresh process beside the window, in seconds: start, warm-up, end."""
        return self._start_s()

    def _start_s(self, settings: Settings | None = None) -> float:
        """Expected time of a final beside its window in seconds; without settings, of the script's own."""
        if self._is_shared:
            return self.runs.shared_start_s
        under = searched_under(settings) if settings is not None else None
        return self.runs.start_s(build_of(settings), under=under)

    def trial_s(self, settings: Settings | None = None, *, is_fresh: bool | None = None) -> float:
        """Expected time of a trial in seconds, 0 before the first; without settings, of a model not compiled.

        Args:
            settings: Settings of the trial.
            is_fresh: Whether the trial needs a new process. None = only if no process waits that can measure the
                script's own settings.
        """
        needs_start = self._is_fresh(is_fresh)
        if not needs_start and self._process_waits:
            return self.runs.live_trial_s(settings)
        return self.runs.trial_s(settings, is_fresh=needs_start)

    def cautious_trial_s(self, settings: Settings, *, is_fresh: bool | None = None) -> float:
        """As `trial_s`, in seconds; but the first trial of a waiting process may take as long as a start.

        The limit of a running trial follows from this price: cuDNN chooses its kernels anew in a first switch.
        """
        return self.runs.trial_s(settings, is_fresh=self._is_fresh(is_fresh))

    def _is_fresh(self, is_fresh: bool | None) -> bool:
        if is_fresh is None and self._has_process is not None:
            return not self._has_process()
        return bool(is_fresh) or self._needs_new_processes

    def return_s(self) -> float:
        """Expected time in seconds to start a process again that another trial has ended."""
        return self.runs.start_s(UNCOMPILED)

    def spare_s(self, settings: Settings | None = None, *, is_alone: bool = False) -> float:
        """Time for further trials in seconds, beside the finals; negative when the finals need more than is left.

        The second trial may take the time of the finals, and a tenth more than the given time, because with a single
        trial the finals would have nothing to compare. A second trial with another build may not: its finals build
        again. A second trial with another build leaves the time of shared finals, if finals can be shared. Where even a
        plain second trial leaves no time for finals, any second trial may take all: no finals begin.

        Args:
            settings: Settings of the next trial. The finals of a fastest trial compile the model again, and the time
                for the compilation is kept too.
            is_alone: Whether no process can measure both the settings and the script's own. The two are then compared
                in new processes only, and finals of other contenders start a process again.
        """
        is_second = self.runs.num_measured <= 1
        if is_second and (self.runs.has_tried(build_of(settings)) or not self._affords_plain_finals):
            return self._tolerated_s
        if is_second and self._has_process is not None and not is_alone:
            return self._tolerated_s - LEAST_ROUNDS * 2 * self._shared_final_s
        kept_s = max(self.reserve_s, self._verified_s(is_alone=is_alone))
        if settings is not None:
            start_s = self._start_s(settings)
            own_s = [self._around_s_of(number) for number in self._kept_for[:1]] or [self.around_s]
            round_s = start_s + own_s[0] + 2 * self.runs.least_window_s
            kept_s = max(kept_s, LEAST_ROUNDS * round_s if is_alone else self._comparison_s(round_s))
        if self._is_kept_in_process:
            kept_s += (LIMIT_FACTOR - 1) * self.trial_s(settings)
        return self.left_s - kept_s

    @property
    def _affords_plain_finals(self) -> bool:
        """Whether finals of two uncompiled contenders fit the time left after an uncompiled trial.

        A process that waits can measure the finals too.
        """
        final_s = min(self.least_final_s, self._shared_final_s) if self._process_waits else self.least_final_s
        return self._tolerated_s - self.trial_s() >= LEAST_ROUNDS * 2 * final_s

    @property
    def final_s(self) -> float:
        """Expected time of a run of the finals, in seconds."""
        return self.around_s + max(FINAL_WINDOW_S, self.runs.usual_window_s)

    @property
    def least_final_s(self) -> float:
        """Expected time of a run of the finals with the shortest useful window, in seconds."""
        return self.around_s + self.runs.least_window_s

    def trial_window_s(self, start_s: float) -> float:
        """Longest window of the next trial, in seconds, with which two trials and a round of finals fit the time left.

        Infinite after two measured trials, because later trials are only begun if the finals have their time.

        Args:
            start_s: Expected time from the start of a run to the window, in seconds, before a first trial tells.
        """
        num_runs = 2 * LEAST_ROUNDS - self.runs.num_measured
        if num_runs <= 2:
            return math.inf
        return max(0.0, self.left_s / num_runs - (self.around_s if self.runs.knows_starts else start_s))

    def allows_trial(self, *, is_fresh: bool | None = None) -> bool:
        """Whether the time suffices for another trial and for the finals afterwards; the first is always allowed.

        Args:
            is_fresh: Whether every trial needs a new process, as in `trial_s`.
        """
        return self.runs.num_trials == 0 or self.spare_s() >= self.trial_s(is_fresh=is_fresh)

    @property
    def reserve_s(self) -> float:
        """Time kept for the finals, in seconds; in a short search, only the least time that finals need."""
        num_finalists = min(NUM_FINALISTS, self._num_rivals, self.runs.num_trials // TRIALS_PER_FINALIST)
        num_rounds, share = (NOISY_ROUNDS, NOISY_SHARE) if self._is_noisy else (NUM_ROUNDS, FINALS_SHARE)
        usual_s = num_rounds * (1 + num_finalists) * self._planned_final_s if num_finalists else 0.0
        return max(self._verified_s(), min(usual_s, share * self._total_s))

    def _verified_s(self, *, is_alone: bool = False, caution: float = 1.0) -> float:
        """Time of the fewest rounds of the contenders kept for, in seconds, with the shortest windows.

        Args:
            is_alone: Whether the finals have to start another process first.
            caution: Multiple of the expected time of new processes to keep.
        """
        start_s = self.runs.shared_process_s(self._kept_for) if is_alone else 0.0
        return self._comparison_s(self.round_s(self._kept_for) or 2 * self.least_final_s, start_s, caution)

    def _comparison_s(self, round_s: float, start_s: float = 0.0, caution: float = 1.0) -> float:
        """Time to keep for a comparison of two contenders, in seconds.

        Usually the fewest rounds of new processes. Where these take more than FINALS_SHARE of the given time, the usual
        rounds in the process of the trials: further trials gain more than new processes are worth.

        Args:
            round_s: Expected time of a round of new processes, in seconds.
            start_s: Expected time of the start of that process, in seconds; 0 for a process that waits.
            caution: Multiple of the expected time of new processes to keep.
        """
        fresh_s = LEAST_ROUNDS * round_s
        shared_s = start_s + NUM_ROUNDS * 2 * self._shared_final_s if self._is_too_long(fresh_s) else math.inf
        return min(caution * fresh_s, shared_s)

    def _is_too_long(self, fresh_s: float) -> bool:
        """Whether finals in new processes, which take so many seconds, rather run in the process of the trials."""
        return self._has_process is not None and fresh_s > FINALS_SHARE * self._total_s

    @property
    def plans_sharing(self) -> bool:
        """Whether even uncompiled finals are planned in the process of the trials."""
        return self._is_too_long(LEAST_ROUNDS * 2 * self.least_final_s)

    @property
    def _planned_final_s(self) -> float:
        """Expected time of a run of the finals as planned, in seconds."""
        if not self.plans_sharing:
            return self.final_s
        return self.runs.shared_start_s + max(FINAL_WINDOW_S, self.runs.usual_window_s)

    def affordable_finalists(self) -> int:
        """Number of best trials with time for all rounds beside the baseline, at least 1."""
        all_s = NUM_ROUNDS * max(self.final_s, FINAL_WINDOW_S)
        num_many = int(SHARE_OF_MANY * self.left_s / all_s) - 1
        return max(1, min(NUM_FINALISTS, int(self.left_s / all_s) - 1), min(MOST_FINALISTS, num_many))

    def affords_rounds(self, num_rounds: int, contenders: Collection[int]) -> bool:
        """Whether rounds of these trials fit the time left, with the shortest windows."""
        return self.left_s >= num_rounds * self.round_s(contenders)

    def affords_least_rounds(self, contenders: Collection[int], *, slack: float = 1.0) -> bool:
        """Whether the fewest rounds of these trials, with the shortest windows, end within the tolerated overrun.

        Args:
            contenders: Numbers of the trials.
            slack: Multiple of the expected time that must fit.
        """
        return self.left_to_finals_s >= slack * LEAST_ROUNDS * self.round_s(contenders)

    def affords_last_round(self, contenders: Collection[int]) -> bool:
        """Whether one round of these trials, with the shortest windows, ends within the tolerated overrun."""
        return self.left_to_finals_s >= self.round_s(contenders)

    def enough_s(self, *, num_rivals: int) -> float:
        """Total time enough to compare the baseline with another trial in the usual rounds, in seconds.

        Args:
            num_rivals: Number of measured trials with other settings. The trials of a single rival and of the baseline
                are the first round; among several rivals one was chosen, and all rounds are missing.
        """
        num_rounds = NUM_ROUNDS if num_rivals > 1 else NUM_ROUNDS - 1
        missing_s = num_rounds * (self.round_s(self._kept_for) or 2 * self.least_final_s)
        missing_s += self.runs.shared_process_s(self._kept_for) if self._is_shared else 0.0
        return self.spent_s + missing_s + (0.0 if num_rivals else self.runs.trial_s())

    def enough_for_first_s(self, run_s: float) -> float:
        """Total time enough for a verified answer when no trial was measured yet, in seconds.

        Args:
            run_s: Expected time of a run by the probe, in seconds; a run that was cut tells more.
        """
        plain_s = self.runs.plain_trials_s
        cut_s = max((*plain_s, 0.0))
        before_s = max(0.0, self.spent_s - sum(plain_s))
        return before_s + 2 * LEAST_ROUNDS * max(run_s + LEAST_FINAL_WINDOW_S, cut_s)

    def round_s(self, contenders: Collection[int]) -> float:
        """Expected time of one final of each of these trials with the shortest windows, in seconds.

        Each final has the expected time of its own start. A trial may occur several times, for several finals.
        """
        return sum(self._around_s_of(number) + self.runs.least_window_s for number in contenders)

    def _around_s_of(self, number: int) -> float:
        """Expected time of a final of a trial's settings beside the window, in seconds."""
        return self.runs.shared_start_s if self._is_shared else self.runs.start_of(number)

    def final_window_s(self, runs: Sequence[int]) -> float:
        """Longest window of the next final, in seconds, with which the given finals fit the time left.

        At most the usual window, or as long as the start takes: beyond, another round tells more than a longer window,
        because processes differ from each other by more than a window's blocks.

        Args:
            runs: The trial's number for each final that is still to run, the next included; at least one.
        """
        longest_s = max(FINAL_WINDOW_S, self.runs.usual_window_s, self.around_s)
        around_s = fmean(self._around_s_of(number) for number in runs)
        return max(self.runs.least_window_s, min(longest_s, self.left_s / len(runs) - around_s))

    @property
    def _tolerated_s(self) -> float:
        """Time left with the tolerated overrun, in seconds; negative after the overrun is spent as well."""
        return (1 + OVERRUN_SHARE) * self._total_s - self.spent_s

    @property
    def _ending_s(self) -> float:
        """Time for the end of a run that the limit cuts, and for the result, in seconds."""
        return ENDING_SHARE * self._total_s
