"""What comes after the plan: of what TPE suggests and of what lies near the best, the trial that should gain most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from autotune.search.bounds import Bounds
from autotune.search.forecast import forecast
from autotune.search.history import History
from autotune.search.memory_model import MemoryModel
from autotune.search.peak_forecast import PeakForecast
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.search.sampler import TpeSampler
from autotune.search.search_stopping import NEIGHBOUR_STAGE, SAMPLED_STAGE
from autotune.search.study_trials import StudySnapshot, StudyTrials
from autotune.settings import Settings
from autotune.space.search_space import SPLIT, SearchSpace

NUM_SUGGESTIONS = 2
"""Suggestions of the sampler among those from which the next trial is chosen."""

MAX_REFUSALS = 20
"""Suggestions of the sampler that are refused in a row before the neighbours of the best are all that is left."""

MAX_REFUSALS_AGAIN = 2
"""The same where a neighbour was tried last: one trial more rarely changes the sampler's mind."""

NUM_CENTRES = 3
"""The fastest so many settings whose neighbours are looked at: which of them is the best is not certain."""

NUM_LEAPS = 3
"""Times that the neighbours of what should gain most are looked at too: changes that only pay together."""

MAX_LOOKED_AT = 5000
"""Settings after which the search for new ones that may fit is given up."""

LARGEST_STEP = 4
"""Factor by which a micro-batch grows at most beside other changes: what lies further is not known well enough."""

LEAST_GAIN = 0.5
"""Share of the noise beyond which a gain counts: among settings that are all alike there are always some that might be
a little faster, and with these a search would spend its trials."""

LEAST_PROBABILITY = 0.1
"""Settings that are less likely than this to stay under the cap are not tried, whatever they promise."""

COST_OF_FAILURES = 0.15
"""What a trial over the cap costs, as a share of the best rate, per share of the trials that would be over it then: so
much must be to be gained by the risk. A search that has failed little so far can afford it, one that often has cannot.
"""

NUM_TELLING = 10
"""Trials from which on the share of those that failed tells how often a search fails."""

CHANGING_ROOM = ("precision", "compile", "cudnn_benchmark", "expandable_segments")
"""Settings that make room for a larger micro-batch, or take it."""


class AfterPlan:
    """Chooses trials when the plan has none.

    Args:
        trials: Of the study; what the memory model rules out is noted there.
        sampler: TPE.
        space: What may be tried.
        limits: The machine.
    """

    def __init__(self, trials: StudyTrials, sampler: TpeSampler, space: SearchSpace, limits: PlanLimits) -> None:
        self._trials, self._sampler, self._space, self._limits = trials, sampler, space, limits

    def outlook(self, snapshot: StudySnapshot, history: History) -> Candidate | None:
        """The trial that should gain most; None where everything that may be tried was."""
        memory = MemoryModel(history, self._space, self._limits.cap_bytes, self._limits.fixed_bytes)
        known = {trial.settings for trial in snapshot.finished} | {*snapshot.running}
        suggested = self._suggested(snapshot, history, memory, known | {*snapshot.gated.values()})
        if not history.feasible:
            return self._nearest_to_best(suggested, history, memory, known)
        prospects = _Prospects(history, memory, self._space, self._limits)
        worths = self._worths(suggested, history, prospects, known)
        best = max(worths, key=lambda one: worths[one], default=None)
        if best is None:
            return None
        stage = SAMPLED_STAGE if best in suggested else NEIGHBOUR_STAGE
        gain_ratio = prospects.worths([best], least_gain=0.0)[best]
        return Candidate(settings=best, stage=stage, expected_gain_ratio=gain_ratio)

    def _worths(
        self, suggested: list[Settings], history: History, prospects: _Prospects, known: set[Settings]
    ) -> dict[Settings, float]:
        """Expected gains of new settings beyond what is little, less the risk that they do not fit."""
        centres = [trial.settings for trial in forecast(history).fastest(history.feasible)[:NUM_CENTRES]]
        looked_at, worths = set[Settings](known), dict[Settings, float]()

        def look_at(some: Iterable[Settings]) -> None:
            new = [one for one in dict.fromkeys(some) if one not in looked_at]
            looked_at.update(new)
            worths.update(prospects.worths(new, least_gain=LEAST_GAIN * self._limits.noise_ratio))

        look_at([*suggested, *self._changes_of_room(centres[0])])
        # Where noise lifted others past the script's own settings, what lies near these may still be the best.
        for ring in self._rings([*centres, history.script_settings]):
            look_at(ring)
            if worths or len(looked_at) - len(known) > MAX_LOOKED_AT:
                break
        for _ in range(NUM_LEAPS if worths else 0):
            look_at(self._sampler.neighbours(max(worths, key=lambda one: worths[one])))
        return worths

    def _nearest_to_best(
        self, suggested: list[Settings], history: History, memory: MemoryModel, known: set[Settings]
    ) -> Candidate | None:
        """Without a forecast: what TPE suggests; failing that the nearest new settings that should fit."""
        centre = history.best.settings if history.best is not None else history.script_settings
        near = (one for ring in self._rings([centre]) for one in ring if one not in known)
        near = (one for one in near if _why_not(memory, one) is None)
        settings = next(iter(suggested), None) or next(near, None)
        if settings is None:
            return None
        stage = SAMPLED_STAGE if suggested else NEIGHBOUR_STAGE
        return Candidate(settings=settings, stage=stage)

    def _suggested(
        self, snapshot: StudySnapshot, history: History, memory: MemoryModel, known: set[Settings]
    ) -> list[Settings]:
        """What TPE suggests and is neither known, nor illegal, nor ruled out; of the latter it is told."""
        was_repeating = bool(history.trials) and history.trials[-1].stage == NEIGHBOUR_STAGE
        num_refusals, found = 0, list[Settings]()
        for settings in self._sampler.suggestions(history.trials, snapshot.running, snapshot.gated):
            reason = None
            if settings not in known and settings not in found and self._space.why_not(settings) is None:
                reason = _why_not(memory, settings)
                if reason is None:
                    found.append(settings)
                    num_refusals = -1
            if reason is not None:
                self._trials.gate(Candidate(settings=settings, stage=SAMPLED_STAGE), reason)
                known.add(settings)
            num_refusals += 1
            limit = MAX_REFUSALS_AGAIN if was_repeating or found else MAX_REFUSALS
            if len(found) >= NUM_SUGGESTIONS or num_refusals >= limit:
                break
        return found

    def _rings(self, centres: Iterable[Settings]) -> Iterator[list[Settings]]:
        """Legal settings in the order of their distance from the nearest of some, in steps of one parameter."""
        ring = list(dict.fromkeys(centres))
        seen = set(ring)
        while ring:
            steps = (one for centre in ring for one in self._sampler.neighbours(centre))
            ring = [one for one in dict.fromkeys(steps) if one not in seen]
            seen.update(ring)
            yield ring

    def _changes_of_room(self, centre: Settings) -> list[Settings]:
        """Settings that make room for a larger micro-batch, or take it, with micro-batches from half the size on.

        What takes room may only fit with another that makes it, and neither alone need be faster.
        """
        params, size = self._space.params(centre), centre.batch_size or 1
        names = [name for name in (SPLIT, "batch_size", *CHANGING_ROOM) if self._sampler.values(name)]
        found = []
        for values in product(*map(self._sampler.values, names)):
            one = self._space.settings({**params, **dict(zip(names, values, strict=True))})
            if 0.5 * size <= (one.batch_size or 1) <= LARGEST_STEP * size and self._space.why_not(one) is None:
                found.append(one)
        return found


class _Prospects:
    """What trials are worth.

    Args:
        history: With at least one feasible trial.
        memory: What its trials say of memory.
        space: What may be tried.
        limits: The machine.
    """

    def __init__(self, history: History, memory: MemoryModel, space: SearchSpace, limits: PlanLimits) -> None:
        self._memory = memory
        self._rates, self._peaks = forecast(history), PeakForecast(history, space, limits.cap_bytes)
        self._bounds = Bounds(history, device_is_cpu=space.device_is_cpu)
        self._least_rate = (history.feasible[0].samples_per_second or 0.0) * (1 + limits.noise_ratio)
        num_failed = sum(trial.outcome.is_infeasible for trial in history.trials)
        self._cost = COST_OF_FAILURES * (num_failed + 1) / max(NUM_TELLING, len(history) + 1)

    def worths(self, some: Sequence[Settings], *, least_gain: float) -> dict[Settings, float]:
        """Expected gains, less the risk that they do not fit, of those settings that may.

        Args:
            some: Settings that were not tried.
            least_gain: Only what they gain beyond this share of the best rate counts.
        """
        fits = {one: self._peaks.fit_probability(one) for one in some if self._memory.smaller_failure(one) is None}
        likely = [one for one, probability in fits.items() if probability >= LEAST_PROBABILITY]
        gains = zip(likely, self._rates.gains(likely, least_gain), strict=True)
        return {
            one: fits[one] * (0.0 if self._is_limited(one) else gain) - (1 - fits[one]) * self._cost
            for one, gain in gains
        }

    def _is_limited(self, settings: Settings) -> bool:
        """Whether the loader of these settings is known to be too slow for any gain."""
        return (self._bounds.loader_rate(settings) or math.inf) < self._least_rate


def _why_not(memory: MemoryModel, settings: Settings) -> str | None:
    return memory.ruled_out(settings) or memory.unlikely(settings)
