"""Trials after the plan: the largest expected gain per second among TPE's suggestions and neighbours of the best."""

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
from autotune.search.prices import FREE, Prices
from autotune.search.sampler import TpeSampler
from autotune.search.search_stopping import NEIGHBOUR_STAGE, SAMPLED_STAGE
from autotune.search.study_trials import StudySnapshot, StudyTrials
from autotune.settings import SETTINGS, Settings
from autotune.space.search_space import SPLIT, SearchSpace

NUM_SUGGESTIONS = 2
"""Suggestions of the sampler per choice of the next trial."""

MAX_REFUSALS = 20
"""Refused suggestions in a row before the sampler gives way to the neighbours of the best."""

MAX_REFUSALS_AGAIN = 2
"""Limit of refusals when the last trial was a neighbour: a further trial rarely changes the sampler's mind."""

NUM_CENTRES = 3
"""Number of fastest settings with their neighbours in the choice, because the best settings are uncertain."""

NUM_LEAPS = 3
"""Times that the neighbours of the most promising settings are considered too: some changes pay only together."""

MAX_WEIGHED = 5000
"""Most settings considered in the search for new settings that fit."""

LARGEST_STEP = 4
"""Largest growth of a micro-batch beside other changes; the forecast is too uncertain for more."""


LEAST_GAIN = 0.5
"""Least gain to count, as a share of the noise: among equal settings some always seem slightly faster, and would
waste trials."""

KEPT_WORTH = 0.9
"""Least share of the expected gain to be left after a change of the next trial is taken back."""

LEAST_PROBABILITY = 0.1
"""Least probability of staying under the cap for settings to be tried, however large the promised gain."""

LIKELY_FIT = 0.8
"""Least probability of staying under the cap for a micro-batch to make smaller ones useless."""

COST_OF_FAILURES = 0.15
"""Cost of a trial over the cap as a share of the best rate, per share of failures after one more failure. An expected
gain must exceed the cost: a search with few failures can afford a risk, a search with many cannot."""

LEAST_TRIALS = 10
"""Least number of trials by which failures are divided; with fewer, the share of failures tells too little."""

MEMORY_SETTINGS = tuple(setting.name for setting in SETTINGS if setting.moves_batch)
"""Settings that change the memory left for a larger micro-batch."""


class AfterPlan:
    """Chooses trials when the plan has none.

    Args:
        trials: Trials of the study; settings ruled out by the memory model are recorded there.
        sampler: TPE.
        space: The settings to search.
        limits: The machine.
    """

    def __init__(self, trials: StudyTrials, sampler: TpeSampler, space: SearchSpace, limits: PlanLimits) -> None:
        self._trials, self._sampler, self._space, self._limits = trials, sampler, space, limits

    def outlook(self, snapshot: StudySnapshot, history: History, prices: Prices = FREE) -> Candidate | None:
        """The trial with the largest expected gain per second; None when every allowed setting was tried.

        Args:
            snapshot: The study's trials.
            history: Finished trials.
            prices: Time of trials; settings without time for a trial come last.
        """
        memory = MemoryModel(history, self._space, self._limits.cap_bytes, self._limits.fixed_bytes)
        known = {trial.settings for trial in snapshot.finished} | {*snapshot.running}
        suggested = self._suggested(snapshot, history, memory, known | {*snapshot.gated.values()})
        if not history.feasible:
            return self._nearest_to_best(suggested, history, memory, known)
        prospects = _Prospects(history, memory, self._space, self._limits)
        worths = self._worths(suggested, history, prospects, known)
        best = max(worths, key=lambda one: _order(one, worths[one], prices), default=None)
        if best is None:
            return None
        stage = SAMPLED_STAGE if best in suggested else NEIGHBOUR_STAGE
        simpler = self._with_fewer_changes(best, history, prospects, prices, known)
        gain_ratio = prospects.worths([simpler], least_gain=0.0)[simpler]
        return Candidate(settings=simpler, stage=stage, expected_gain_ratio=gain_ratio)

    def _least_size(self, history: History) -> int:
        """The next allowed micro-batch below the smallest one tried, or that one.

        Far smaller micro-batches have unknown rates and seem to promise large gains: with time for four trials, a trial
        split a batch of 32 into single samples.
        """
        smallest = min(trial.settings.batch_size or 1 for trial in history.trials)
        params = ({name: value} for name in (SPLIT, "batch_size") for value in self._sampler.values(name))
        sizes = (self._space.settings(one).batch_size or 1 for one in params)
        return max((size for size in sizes if size < smallest), default=smallest)

    def _is_smaller_in_vain(self, settings: Settings, leader: Settings, prospects: _Prospects) -> bool:
        """True for a batch in more parts than the leader's on an accelerator, where the leader's parts would do too.

        On an accelerator more parts only save memory; they make no step faster. Nine trials of a search went into the
        failures of a batch in two parts. Sizes that the user asked for are tried.
        """
        is_smaller = (settings.batch_size or 1) < (leader.batch_size or 1)
        is_exempt = self._space.device_is_cpu or self._space.has_asked_batches or SPLIT not in self._space.domains
        if is_exempt or not is_smaller:
            return False
        params = {**self._space.params(settings), SPLIT: self._space.params(leader)[SPLIT]}
        whole = self._space.settings(params)
        return self._space.why_not(whole) is None and prospects.fits(whole)

    def _worths(
        self, suggested: list[Settings], history: History, prospects: _Prospects, known: set[Settings]
    ) -> dict[Settings, float]:
        """Expected gains of new settings above the least gain, less the risk of not fitting."""
        centres = [trial.settings for trial in forecast(history).fastest(history.feasible)[:NUM_CENTRES]]
        weighed, worths = set[Settings](known), dict[Settings, float]()
        least = 0 if self._space.device_is_cpu else self._least_size(history)

        def weigh(some: Iterable[Settings]) -> None:
            new = [one for one in dict.fromkeys(some) if one not in weighed and (one.batch_size or 1) >= least]
            weighed.update(new)
            worths.update(
                prospects.worths([one for one in new if not self._is_smaller_in_vain(one, centres[0], prospects)])
            )

        weigh([*suggested, *self._memory_changes(centres[0])])
        # After lucky trials of other settings, the neighbours of the script's own settings may still be the best.
        for ring in self._rings([*centres, history.script_settings]):
            weigh(ring)
            if worths or len(weighed) - len(known) > MAX_WEIGHED:
                break
        for _ in range(NUM_LEAPS if worths else 0):
            weigh(self._sampler.neighbours(max(worths, key=lambda one: worths[one])))
        return worths

    def _with_fewer_changes(
        self, settings: Settings, history: History, prospects: _Prospects, prices: Prices, known: set[Settings]
    ) -> Settings:
        """The settings without changes of small expected gain from the fastest trial.

        Every untried change promises a little. Sampled settings with a dozen changes therefore promise more than the
        single important change, but a failure of a dozen changes explains nothing.
        """
        leader = forecast(history).fastest(history.feasible)[0].settings
        centre = self._space.params(leader)
        worth = prospects.worth(settings)
        for name in self._space.searched if worth > 0 else ():
            params = self._space.params(settings)
            simpler = self._space.settings({**params, name: centre[name]})
            if params[name] == centre[name] or simpler in known or self._space.why_not(simpler) is not None:
                continue
            if self._is_smaller_in_vain(simpler, leader, prospects):
                continue
            simpler_worth = prospects.worth(simpler)
            is_dearer = _order(simpler, simpler_worth, prices) < _order(settings, KEPT_WORTH * worth, prices)
            if simpler_worth >= KEPT_WORTH * worth and not is_dearer:
                settings = simpler
        return settings

    def _nearest_to_best(
        self, suggested: list[Settings], history: History, memory: MemoryModel, known: set[Settings]
    ) -> Candidate | None:
        """A candidate without a forecast: TPE's suggestion, or the nearest new settings likely to fit."""
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
        """New, legal suggestions of TPE that should fit the cap; the rest are recorded in the study as gated."""
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
        """Legal settings by distance from the nearest centre, in steps of one parameter."""
        ring = list(dict.fromkeys(centres))
        reached = set(ring)
        while ring:
            steps = (one for centre in ring for one in self._sampler.neighbours(centre))
            ring = [one for one in dict.fromkeys(steps) if one not in reached]
            reached.update(ring)
            yield ring

    def _memory_changes(self, centre: Settings) -> list[Settings]:
        """Combinations of memory-changing settings, with micro-batches from half the present size on.

        A change at a cost in memory may fit only together with a change to less memory; alone, both may be no
        faster.
        """
        params, size = self._space.params(centre), centre.batch_size or 1
        names = [name for name in (SPLIT, "batch_size", *MEMORY_SETTINGS) if self._sampler.values(name)]
        found = []
        for values in product(*map(self._sampler.values, names)):
            one = self._space.settings({**params, **dict(zip(names, values, strict=True))})
            if 0.5 * size <= (one.batch_size or 1) <= LARGEST_STEP * size and self._space.why_not(one) is None:
                found.append(one)
        return found


class _Prospects:
    """The worth of trials.

    Args:
        history: Finished trials, at least one feasible.
        memory: Memory model of these trials.
        space: The settings to search.
        limits: The machine.
    """

    def __init__(self, history: History, memory: MemoryModel, space: SearchSpace, limits: PlanLimits) -> None:
        self._memory = memory
        reachable = limits.reachable_bytes or limits.cap_bytes
        self._rates = forecast(history)
        self._peaks = PeakForecast(history, space, reachable, limits.fixed_estimate_bytes)
        self._bounds = Bounds(history, device_is_cpu=space.device_is_cpu)
        self._outcomes = {trial.settings: (trial.is_feasible, trial.is_near_cap) for trial in history.trials}
        self._least_gain = LEAST_GAIN * limits.noise_ratio
        self._least_rate = (history.feasible[0].samples_per_second or 0.0) * (1 + limits.noise_ratio)
        num_failed = sum(trial.outcome.is_infeasible for trial in history.trials)
        self._cost = COST_OF_FAILURES * (num_failed + 1) / max(LEAST_TRIALS, len(history) + 1)

    def worths(self, some: Sequence[Settings], *, least_gain: float | None = None) -> dict[Settings, float]:
        """Expected gains of settings under the cap, less the risk of not fitting.

        Args:
            some: Settings not tried yet.
            least_gain: Share of the best rate from which a gain counts; None = half of the noise.
        """
        least_gain = self._least_gain if least_gain is None else least_gain
        fits = {one: self._peaks.fit_probability(one) for one in some if self._memory.smaller_failure(one) is None}
        likely = [one for one, probability in fits.items() if probability >= LEAST_PROBABILITY]
        gains = zip(likely, self._rates.gains(likely, least_gain), strict=True)
        return {
            one: fits[one] * (0.0 if self._is_limited(one) else gain) - (1 - fits[one]) * self._cost
            for one, gain in gains
        }

    def fits(self, settings: Settings) -> bool:
        """True for settings that stay under the cap with room to spare, as measured or as expected."""
        if settings in self._outcomes:
            return self._outcomes[settings] == (True, False)
        return self._memory.smaller_failure(settings) is None and self._peaks.fit_probability(settings) >= LIKELY_FIT

    def worth(self, settings: Settings) -> float:
        """Expected gain of a trial, less the risk of not fitting; 0 for settings unlikely to fit."""
        return self.worths([settings]).get(settings, 0.0)

    def _is_limited(self, settings: Settings) -> bool:
        """True when the loader of these settings is known to be too slow for any gain."""
        return (self._bounds.loader_rate(settings) or math.inf) < self._least_rate


def _order(settings: Settings, worth: float, prices: Prices) -> tuple[bool, float]:
    """Sorts by worth per second, settings without time for a trial first; a loss is a loss at any price."""
    return prices.affords(settings), prices.per_second(worth, settings) if worth > 0 else worth


def _why_not(memory: MemoryModel, settings: Settings) -> str | None:
    return memory.ruled_out(settings) or memory.unlikely(settings)
