"""Learns how long the runs of a search take, and predicts the time of further trials and finals."""

from __future__ import annotations

import math
from collections.abc import Collection
from statistics import median
from typing import Any

from autotune.measure.window_stopping import LEAST_BLOCKS, LONG_BLOCK_S
from autotune.settings import Settings
from autotune.settings.compile_mode import BUILD_S, UNCOMPILED, build_of
from autotune.settings.cudnn_benchmark import searched_under

REBUILD_SHARE = 0.3
"""Expected share of a build's time in a later process, with the compiler's cache of the study. A Transformer of six
layers took 81 s and then 8.5 s on a busy CPU."""
LEAST_BUILD_FACTOR = 0.25
"""Least share of the usual time of a build that is expected after fast builds: a cache may have served these."""
LEAST_FINAL_WINDOW_S = 3.0
"""Shortest window of a final, in seconds: a shorter final says no more than the trial before."""
LEAST_SHARE = 0.5
"""Shortest window of a final as a share of a trial's window: a shorter window has too few steps to say anything."""
SHARED_AROUND_S = 4.0
"""Expected time of a final in the process of the trials beside its window, before such a trial tells, in seconds:
switch, warm-up and the first batches."""
FIRST_LIVE_S = 10.0
"""Expected time of the first trial in a waiting process, without the window and the build of a model, in seconds. GPT-2
took 3 s. ResNet-50 from timm took 25 s, because cuDNN chose new kernels."""
SWITCH_AGAIN_S = 2.0
"""Longest expected switch to settings that the process has had before, in seconds. timm's ResNet-50 took 13 s to its
first switch to channels_last, while cuDNN chose its kernels."""
NUM_RECENT = 8
"""Number of latest trials used to predict the next trial's time: settings change as a search goes on."""
SLOW_SHARE = 0.75
"""Share of the recent trials that took no longer than the time expected of the next trial."""


class RunTimes:
    """The times of a search's runs so far, and the expected times of further runs.

    A *live* run goes on in the process of earlier runs, a *fresh* run begins in a new process. A *build* is the mode of
    compilation (`autotune.settings.compile_mode.build_of`).

    Args:
        keeps_builds: Whether the trials of the study share the compiler's cache.
    """

    def __init__(self, *, keeps_builds: bool = False) -> None:
        self._rebuild_share = REBUILD_SHARE if keeps_builds else 1.0
        self._trial_s: dict[str, list[float]] = {}
        """Wall time of trials in seconds, by the model's build."""
        self._live_trial_s: dict[str, list[float]] = {}
        """The same of live trials alone, without the time of cuDNN's searches."""
        self._around_s: dict[str, list[float]] = {}
        """Time of fresh runs beside their windows in seconds, by the model's build, without cuDNN's searches."""
        self._fresh_search_s: dict[tuple[Any, ...], list[float]] = {}
        """Time of cuDNN's searches in fresh runs in seconds, by `searched_under` of their settings."""
        self._own_under: tuple[Any, ...] = ()
        """`searched_under` of the first trial, which has the script's own settings."""
        self._under: dict[int, tuple[Any, ...]] = {}
        """`searched_under` of the trials, by number."""
        self._around_of: dict[int, float] = {}
        """Latest time of a fresh run beside the window by the trial's number, in seconds."""
        self._shared_around_s: list[float] = []
        """Time of live finals beside their windows in seconds, as live trials and finals tell."""
        self._live_around_of: dict[int, float] = {}
        """Time of live trials beside window and switch in seconds, by number."""
        self._switch_of: dict[int, float] = {}
        """Time of switch and kernel searches of live trials without a compiled model in seconds, by number."""
        self._kernel_search_s = 0.0
        """Longest time that a run left out, because cuDNN searched kernels for new sizes of the inputs, in seconds."""
        self._searched_under: set[tuple[Any, ...]] = set()
        """Values of `searched_under` that the process of the latest run has had."""
        self._startup_s: list[float] = []
        """Time of new processes until they train, in seconds."""
        self._first_build_s: dict[str, list[float]] = {}
        """Time of first builds in seconds, by build."""
        self._switch_s: dict[str, float] = {}
        """Longest switch of a live run to a compiled model in seconds, by build."""
        self._cached: set[str] = set()
        """Builds in the compiler's cache: those of trials that came through."""
        self._built_in_process: set[str] = set()
        """Builds of the process of the latest trial."""
        self._builds: dict[int, str] = {}
        """Builds of the trials with a compiled model, by number."""
        self._window_s: list[float] = []
        self._block_s: list[float] = []
        """Mean block of each of these windows in seconds; 0 when unknown."""

    # --- what the runs tell

    def trial_took(
        self,
        wall_s: float,
        *,
        window_s: float | None = None,
        num_blocks: int | None = None,
        number: int | None = None,
        settings: Settings | None = None,
        is_fresh: bool = True,
        startup_s: float | None = None,
        switch_s: float | None = None,
        left_out_s: float = 0.0,
        is_complete: bool = True,
    ) -> None:
        """Learns how long a trial takes.

        Args:
            wall_s: Time from the start to the end of the trial, in seconds.
            window_s: Length of the window in seconds, for a trial measured in full; None for a trial that raced out or
                failed, because an early end tells nothing of the time of a final.
            num_blocks: Blocks of the window; None when unknown.
            number: Number of the trial; None where no final will run it again.
            settings: Settings of the trial; None = a model that was not compiled.
            is_fresh: Whether the trial had a process of its own, as finals have.
            startup_s: Time until a process of its own trained, in seconds; None when unknown.
            switch_s: Time until a process of other trials trained with the settings, in seconds, builds included; None
                for a trial with a process of its own.
            left_out_s: Time that the measurement left out, because cuDNN searched kernels for new sizes of the model's
                inputs, in seconds. A process searches once for each size under the same settings.
            is_complete: Whether the trial came through, raced out or not: the compiler's cache then has the build.
        """
        build = build_of(settings)
        if not self.num_trials:
            self._own_under = searched_under(settings)
        self._note_searches(settings, left_out_s, is_fresh=is_fresh)
        self._cached |= {build} if is_complete else set()
        self._built_in_process = {build} if is_fresh else {*self._built_in_process, build}
        self._trial_s.setdefault(build, []).append(wall_s)
        if not is_fresh:
            self._live_trial_s.setdefault(build, []).append(max(0.0, wall_s - left_out_s))
        if number is not None:
            self._builds[number] = build
            self._under[number] = searched_under(settings)
        if window_s is not None:
            self._window_s.append(window_s)
            self._block_s.append(window_s / num_blocks if num_blocks else 0.0)
            if is_fresh:
                self._note_first_build(wall_s - window_s, left_out_s, number, build)
                self._startup_s += [startup_s] if startup_s is not None else []
            else:
                self._note_switch(wall_s - window_s, switch_s, left_out_s, number, build)

    def final_took(
        self,
        wall_s: float,
        *,
        window_s: float,
        number: int | None = None,
        settings: Settings | None = None,
        is_live: bool = False,
        switch_s: float | None = None,
        left_out_s: float = 0.0,
    ) -> None:
        """Learns from a final how long a run takes beside the window.

        Args:
            wall_s: Time from the start to the end of the final, in seconds.
            window_s: Length of the window, in seconds.
            number: Number of the trial that ran again.
            settings: Settings of the trial; None = a model that was not compiled.
            is_live: Whether the final had the process of earlier runs.
            switch_s: Time until such a process trained with the settings, in seconds; None for a fresh run.
            left_out_s: Time that the measurement left out, in seconds, as in `trial_took`.
        """
        build = build_of(settings)
        self._built_in_process = {*self._built_in_process, build} if is_live else {build}
        self._note_searches(settings, left_out_s, is_fresh=not is_live)
        if is_live:
            self._note_live(wall_s - window_s, (switch_s or 0.0) + left_out_s)
        else:
            self._note_around(wall_s - window_s, left_out_s, number, build)

    def _note_searches(self, settings: Settings | None, left_out_s: float, *, is_fresh: bool) -> None:
        """Learns which kernels the process has, and how long the searches for others take."""
        self._kernel_search_s = max(self._kernel_search_s, left_out_s)
        under = searched_under(settings)
        if is_fresh and under:
            self._fresh_search_s.setdefault(under, []).append(left_out_s)
        if settings is not None:
            self._searched_under = {under} if is_fresh else {*self._searched_under, under}

    def _note_live(self, around_s: float, once_s: float) -> float:
        """Learns from a live run, and returns its time beside the window without `once_s`, in seconds.

        Args:
            around_s: Time of the run beside its window, in seconds.
            once_s: Time of the switch and of cuDNN's searches, in seconds. A later run finds the graph and the kernels.
        """
        live_around_s = max(0.0, around_s - once_s)
        self._shared_around_s.append(live_around_s + min(once_s, SWITCH_AGAIN_S))
        return live_around_s

    def _note_switch(
        self, around_s: float, switch_s: float | None, left_out_s: float, number: int | None, build: str
    ) -> None:
        """Learns from a live trial."""
        once_s = (switch_s or 0.0) + left_out_s
        live_around_s = self._note_live(around_s, once_s)
        if number is not None:
            self._live_around_of[number] = live_around_s
            if build == UNCOMPILED:
                self._switch_of[number] = once_s
        if switch_s is not None and build != UNCOMPILED:
            self._first_build_s.setdefault(build, [switch_s])
            # The time of plain starts has the searches of a new process already.
            self._switch_s[build] = max(switch_s, self._switch_s.get(build, 0.0))

    def _note_first_build(self, around_s: float, search_s: float, number: int | None, build: str) -> None:
        """Learns from a fresh trial, which may have built what finals find in the compiler's cache."""
        if build != UNCOMPILED:
            plain_s = min(around_s, self.start_s(UNCOMPILED, under=()) + search_s)
            self._first_build_s.setdefault(build, []).append(max(0.0, around_s - plain_s))
            around_s = plain_s + self._rebuild_share * max(0.0, around_s - plain_s)
        self._note_around(around_s, search_s, number, build)

    def _note_around(self, around_s: float, search_s: float, number: int | None, build: str) -> None:
        """Learns from a fresh run, of which cuDNN searched kernels for `search_s` seconds."""
        self._around_s.setdefault(build, []).append(max(0.0, around_s - search_s))
        if number is not None:
            self._around_of[number] = max(0.0, around_s)

    # --- what is known

    @property
    def num_trials(self) -> int:
        """Number of trials."""
        return sum(map(len, self._trial_s.values()))

    @property
    def num_measured(self) -> int:
        """Number of trials measured in full."""
        return len(self._window_s)

    @property
    def plain_trials_s(self) -> tuple[float, ...]:
        """Wall time of each trial without a compiled model, in seconds."""
        return tuple(self._trial_s.get(UNCOMPILED, ()))

    @property
    def knows_starts(self) -> bool:
        """Whether a fresh run was measured in full."""
        return bool(self._around_s)

    def has_tried(self, build: str) -> bool:
        """Whether a trial had this build, or the model as it is."""
        return build == UNCOMPILED or build in self._trial_s

    # --- windows

    @property
    def usual_window_s(self) -> float:
        """Mean window of the recent trials in seconds; 0 before the first."""
        recent = self._window_s[-NUM_RECENT:]
        return sum(recent) / len(recent) if recent else 0.0

    @property
    def least_window_s(self) -> float:
        """Shortest useful window of a final, in seconds: slow steps need long windows, as the trials' windows show.

        A window of steps of a second or more has at least four of them, however short it should be.
        """
        recent = self._block_s[-NUM_RECENT:]
        block_s = median(recent) if recent else 0.0
        of_blocks_s = LEAST_BLOCKS * block_s if block_s >= LONG_BLOCK_S else 0.0
        return max(LEAST_FINAL_WINDOW_S, LEAST_SHARE * self.usual_window_s, of_blocks_s)

    # --- starts of processes, and builds

    def start_s(self, build: str, *, under: tuple[Any, ...] | None = None) -> float:
        """Expected time of a fresh run beside its window in seconds, with the compiler's cache.

        Args:
            build: The model's build.
            under: `searched_under` of the settings; None for the script's own. A first run of YOLOX on an H200 took
                85 s, and 52 s of these were cuDNN's searches.
        """
        under = self._own_under if under is None else under
        search_s = self._expected_search_s(under)
        recent = self._around_s.get(build, ())[-NUM_RECENT:]
        if recent:
            return median(recent) + search_s
        if build != UNCOMPILED:
            # No cache has the kernels timed by cuDNN: ResNet-50 on an H100 took 36 and 41 s to switch, and its finals
            # 41 and 47 s more than others, with the graph in the compiler's cache.
            again_s = self._switch_s.get(build, self._rebuild_share * self._build_s(build))
            return self.start_s(UNCOMPILED, under=under) + again_s
        for times_s in self._around_s.values():
            return median(times_s[-NUM_RECENT:]) + search_s
        whole_s = (self._trial_s.get(UNCOMPILED, []), *self._trial_s.values())
        return next((median(times_s[-NUM_RECENT:]) for times_s in whole_s if times_s), 0.0)

    def _expected_search_s(self, under: tuple[Any, ...]) -> float:
        """Expected time of cuDNN's searches in a fresh run in seconds, under these values of `searched_under`."""
        if not under:
            return 0.0
        every = [one_s for times_s in self._fresh_search_s.values() for one_s in times_s]
        known_s = self._fresh_search_s.get(under, every)[-NUM_RECENT:]
        return median(known_s) if known_s else 0.0

    def start_of(self, number: int, settings: Settings | None = None) -> float:
        """Expected time of a trial's settings in a fresh run beside the window, in seconds.

        A fresh run may compile the model, of which a live run says nothing.

        Args:
            number: Number of the trial.
            settings: Settings of a trial that may not have ended yet.
        """
        known_s = self._around_of.get(number)
        if known_s is not None:
            return known_s
        build = build_of(settings) if settings is not None else self._build_of(number)
        under = searched_under(settings) if settings is not None else self._under_of(number)
        plain_s, start_s = (self.start_s(one, under=under) for one in (UNCOMPILED, build))
        # More workers take longer to fill the queues than the script's own workers took for the baseline. What a switch
        # takes beyond the usual, such as cuDNN's choice of kernels, a new process takes too: 8 s for a diffusion model
        # on an H100.
        startup_s = median(self._startup_s) if self._startup_s else 0.0
        own_s = max(0.0, self._switch_of.get(number, 0.0) - SWITCH_AGAIN_S) + self._live_around_of.get(number, 0.0)
        return max(start_s, startup_s + own_s + start_s - plain_s)

    def shared_process_s(self, contenders: Collection[int]) -> float:
        """Expected time of the start of a process for live finals of these trials in seconds, with all their builds."""
        searches_s = sum(map(self._expected_search_s, {self._under_of(number) for number in contenders}))
        builds_s = self._builds_s({self._build_of(number) for number in contenders})
        return self.start_s(UNCOMPILED, under=()) + searches_s + builds_s

    def _under_of(self, number: int) -> tuple[Any, ...]:
        return self._under.get(number, self._own_under)

    def missing_builds_s(self, contenders: Collection[int]) -> float:
        """Expected time in seconds of these trials' builds, without the builds in the process of the latest trial."""
        return self._builds_s({self._build_of(number) for number in contenders} - self._built_in_process)

    @property
    def shared_start_s(self) -> float:
        """Expected time of a live final beside its window, in seconds."""
        recent = self._shared_around_s[-NUM_RECENT:]
        return median(recent) if recent else SHARED_AROUND_S

    def _builds_s(self, builds: Collection[str]) -> float:
        """Expected time of builds in one process, in seconds, with the compiler's cache."""
        plain_s = self.start_s(UNCOMPILED)
        return sum(max(0.0, self.start_s(build) - plain_s) for build in builds)

    def _build_of(self, number: int) -> str:
        return self._builds.get(number, UNCOMPILED)

    def _build_s(self, build: str) -> float:
        """Expected time of a build not met before, in seconds, by the times of other builds on this machine."""
        factors = [median(times_s) / BUILD_S[other] for other, times_s in self._first_build_s.items()]
        return BUILD_S[build] * max(LEAST_BUILD_FACTOR, median(factors)) if factors else BUILD_S[build]

    # --- trials

    def trial_s(self, settings: Settings | None = None, *, is_fresh: bool = False) -> float:
        """Expected time of a trial in seconds, 0 before the first; without settings, of a model not compiled.

        Args:
            settings: Settings of the trial.
            is_fresh: Whether the trial needs a new process. Before the first live trial all do.
        """
        build = build_of(settings)
        if is_fresh and self._live_trial_s:
            return self._first_start_s(build, searched_under(settings) if settings else None) + self.usual_window_s
        # Before the first live trial, the time of trials contains the searches of new processes.
        search_s = self._missing_searches_s(settings) if self._live_trial_s else 0.0
        return self._known_trial_s(build) + search_s

    def _known_trial_s(self, build: str) -> float:
        """Expected time of a trial in the process that waits in seconds, with kernels that cuDNN has searched."""
        known_s = self._live_trial_s or self._trial_s
        recent = sorted(known_s.get(build, ())[-NUM_RECENT:])
        if recent:
            return recent[math.ceil(SLOW_SHARE * len(recent)) - 1]
        others = known_s.get(UNCOMPILED) or next(iter(known_s.values()), [])
        if not others:
            return 0.0
        return median(others) + (self._build_s(build) if build != UNCOMPILED else 0.0)

    def _missing_searches_s(self, settings: Settings | None) -> float:
        """Expected time of cuDNN's searches in a trial that goes on in the process, in seconds."""
        under = searched_under(settings)
        return 0.0 if not under or under in self._searched_under else self._kernel_search_s

    def live_trial_s(self, settings: Settings | None = None) -> float:
        """Expected time of a trial in the process that waits, in seconds; before the first such trial, a guess.

        With the time of a start in its place, a search of two minutes ended after 80 s with the baseline alone.
        """
        known_s = self.trial_s(settings)
        if self._live_trial_s:
            return known_s
        build = build_of(settings)
        build_s = self._build_s(build) if build != UNCOMPILED else 0.0
        return min(known_s, FIRST_LIVE_S + self.usual_window_s + build_s + self._missing_searches_s(settings))

    def new_size_s(self, build: str, *, is_fresh: bool) -> float:
        """Expected time of a run beside its window in seconds, with a batch size that no run had before.

        Args:
            build: The model's build, which no cache has for this size.
            is_fresh: Whether the run begins in a new process.
        """
        start_s = self.start_s(UNCOMPILED) if is_fresh else self.shared_start_s
        return start_s + (self._build_s(build) if build != UNCOMPILED else 0.0)

    def _first_start_s(self, build: str, under: tuple[Any, ...] | None) -> float:
        """Expected time of a fresh trial beside its window in seconds; a build outside the cache takes all its time."""
        if build in (UNCOMPILED, *self._cached):
            return self.start_s(build, under=under)
        return self.start_s(UNCOMPILED, under=under) + self._build_s(build)
