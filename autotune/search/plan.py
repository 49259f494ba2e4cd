"""The structured plan: the settings to try, in order, as a pure function of the finished trials and the limits.

The plan reads as plain sequential code. Every step asks the plan state for a trial; the pass stops at the first missing
trial and proposes its settings. A search therefore resumes anywhere, and the plan can be read from top to bottom.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.search.batch_stages import grow_micro_batch, larger_batch, shrink_micro_batch, shrink_to_fit
from autotune.search.bounds import LOADER_BOUND_WAIT
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import HALF, Candidate, NeedsTrial, PlanLimits, PlanState
from autotune.search.worker_stages import (
    USUAL_STAGE,
    feed,
    fewer_threads_beside_workers,
    forked_workers,
    share_cores,
    try_shares_of_cores,
    waits_for_data,
    workers_for_usual_gains,
)
from autotune.settings import SETTINGS, CompileMode, Precision, Settings, Value
from autotune.settings.compile_mode import GRAPHS
from autotune.settings.setting import Effect, Group
from autotune.space.search_space import KNOB_PREFIX, SearchSpace

BASELINE_STAGE = "baseline"

AS_ASKED_STAGE = "as_asked"
"""The script's own settings, moved into the ranges given by the user."""

LOADER_STAGE = "usual_loader"
"""The usual changes of the loader without those of the compute."""

LONG_SEARCH_S = 10.0
"""Time of cuDNN's searches in the baseline, in seconds, from which a trial of the loader comes before number and memory
formats, under which cuDNN searches anew. YOLOX draws its images in a dozen sizes: its first trial in bf16 took 183 s on
an H200, and a final 206 s, so more workers were never tried without bf16."""

FORMATS_STAGE = "formats"
"""Number format and memory format at once, on a CPU."""

COMPILE_STAGE = "compile"
"""Stage of the plan's compiled trials on an accelerator."""

MAX_PASSES = 3
"""Most passes around the best; a pass without a move is the last."""

NEARLY_FED = 0.98
"""Least share of the compute-only rate at which a trial of the loader's details is a waste."""

USUAL = tuple((setting, setting.usual) for setting in SETTINGS if setting.usual is not None)
"""Settings with a value that usually helps on an accelerator."""

SMALL_GAINS = {setting.name for setting, usual in USUAL if usual.is_small}
"""Settings with a gain of a few percent at most, once number format, memory format and workers are right."""

SLOW_STARTS = {setting.name for setting, usual in USUAL if usual.slows_start}
"""Settings with a cost of seconds at the start of every trial."""

ONE_BY_ONE = sorted((setting for setting in SETTINGS if setting.cpu_turn), key=lambda setting: setting.cpu_turn or 0)
"""Settings tried singly on a CPU, in order."""

ENGINE = "keras_backend"
"""The largest choice of a Keras script, before everything that depends on the engine."""

ENGINE_GAIN = 0.05
"""Least gain of another engine, as a share of the rate. An LSTM on JAX was 0.4 % faster by noise, and the rest of the
search ran on JAX: without bf16, which gains on TensorFlow alone."""

MEMORY = "keep_freed_memory"
"""A choice only for steps with many requests for memory; no other setting gains as much for such steps on a CPU."""

IDLE_UTILIZATION = 0.75
"""Utilization of a fed device below which the host's launches take a good part of a step."""

GROWN_RATIO = 4
"""Least growth of a micro-batch that may change the bottleneck."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanFinished:
    """The plan has nothing left to try."""

    best: Settings
    """The fastest settings visited; the script's own when no trial was feasible."""
    visited: tuple[FinishedTrial, ...] = ()
    """The visited trials; the plan rests on no others."""

    def holds_for(self, history: History) -> bool:
        """True when the plan over this history ends here as well, because all visited trials are unchanged."""
        return all(history.get(trial.settings) == trial for trial in self.visited)


def plan(history: History, space: SearchSpace, limits: PlanLimits) -> Candidate | PlanFinished:
    """The next settings of the plan, or the finished plan.

    Args:
        history: Finished trials; the plan ignores trials outside its own steps.
        space: The settings to search.
        limits: The machine.
    """
    state = PlanState(history, space, limits)
    try:
        state.measured(state.best, BASELINE_STAGE)
        state.consider({}, AS_ASKED_STAGE)
        shrink_to_fit(state)
        state.try_others(ENGINE, "engine", favour=-ENGINE_GAIN)
        _feed_keras(state)
        if space.device_is_cpu:
            _own_knobs(state)
            _on_cpu(state)
            _around_the_best(state)
        else:
            _on_accelerator(state)
    except NeedsTrial as need:
        return need.candidate
    return PlanFinished(best=state.best, visited=state.visited.trials)


def _on_accelerator(state: PlanState) -> None:
    """Tries the usual gains and grows the micro-batch; `after_plan` forecasts the rest from these trials."""
    _usual_gains(state)
    _own_knobs(state)
    fewer_threads_beside_workers(state)
    if _launches_bind(state):
        # Autocast adds launches, and tf32 none. More workers come later: a fed device gains little from more workers.
        state.consider({"precision": Precision.TF32.value}, "precision")
        _compile(state)
    try_shares_of_cores(state)
    if _is_loader_limited(state):
        feed(state)
    state.try_others(MEMORY, "memory")
    grow_micro_batch(state)
    if _usual_compute_again(state):
        grow_micro_batch(state)
    _compile(state)


def _is_loader_limited(state: PlanState) -> bool:
    """True when no known loader keeps up with the fastest compute, so faster compute would not help."""
    most, compute = state.bounds.largest_loader_rate(state.limits.usable_cpus), state.bounds.compute_rate(state.lead)
    return most is not None and compute is not None and compute > most


def _feed_keras(state: PlanState) -> None:
    """Tries the data settings of a Keras script whose training waits for data; does nothing for other scripts.

    Threads as workers block each other in Python: the first change is to processes and to more workers at once.
    """
    if len(state.choices("dataset_workers")) > 1 and not state.is_fed():
        number = max(2, state.at_most("dataset_workers", state.limits.usable_cpus))
        state.consider({"dataset_workers": number, "dataset_multiprocessing": True}, "data")
        state.consider({"dataset_workers": number}, "data")
    for setting in ONE_BY_ONE:
        if setting.group is Group.DATA and not state.is_fed():
            if setting.bounds and setting.default:
                state.climb(setting.name, "data")
            else:  # A switch, or a number with 0 for the engine's own choice.
                state.try_others(setting.name, "data")


def _on_cpu(state: PlanState) -> None:
    _usual_formats(state)
    state.try_others(MEMORY, "memory")
    share_cores(state)
    grow_micro_batch(state)
    _precision(state)
    _one_by_one(state)
    grow_micro_batch(state)
    shrink_micro_batch(state)


def _usual_formats(state: PlanState) -> None:
    """On a CPU with instructions for bf16: tries bf16 and channels_last at once, unless the script waits for data.

    A ResNet-50 on two cores with avx512_bf16: 22.7 images per second in fp32, 44.3 in bf16, 64.0 in both formats. With
    steps of seconds the first trial after the baseline is often the only one.
    """
    is_offered = state.best.is_of_torch and Precision.BF16.value in state.choices("precision")
    if state.limits.has_bf16_instructions and is_offered and not waits_for_data(state):
        formats = {"channels_last": True} if True in state.choices("channels_last") else {}
        state.consider({"precision": Precision.BF16.value, **formats}, FORMATS_STAGE)


def _usual_gains(state: PlanState) -> None:
    """Tries the usual gains on an accelerator all at once; later trials take back changes without a gain."""
    compute = _usual_compute(state)
    if waits_for_data(state):
        # The benchmark costs seconds at the start of every later trial, for a gain hidden by a slow loader.
        compute = {name: value for name, value in compute.items() if name not in SLOW_STARTS}
    loader: dict[str, Value] = {
        setting.name: usual.value for setting, usual in USUAL if setting.effect is Effect.LOADER
    }
    loader |= {"num_workers": workers_for_usual_gains(state), **forked_workers(state)}
    loader = _without_new_process(state, loader)
    if waits_for_data(state) and _searches_kernels(state):
        loader = _helpful_loader(state, loader)
    settings = state.changed({**compute, **loader})
    if settings.differences(state.best).keys() <= SMALL_GAINS:
        # A script with its own number format and no loader: only compilation can still gain much.
        settings = state.changed({**compute, **loader, **_usual_build(state)})
    if settings.differences(state.best).keys() <= SMALL_GAINS:
        # Nor can the model be compiled, mostly because the script does so: a larger micro-batch may gain most.
        settings = state.changed({**compute, **loader, **larger_batch(state)})
    if state.is_open(settings):
        state.measured(settings, USUAL_STAGE, favour=state.limits.noise_ratio)
    trial = state.visited.get(settings)
    if trial is not None and not trial.outcome.is_complete:
        # One change does harm here, rarely a loader change. From here on the plan tries the other changes singly.
        state.consider(loader, LOADER_STAGE)


def _helpful_loader(state: PlanState, loader: dict[str, Value]) -> dict[str, Value]:
    """The changes of the loader, after a trial of these alone; empty if that failed or was slower.

    Such a trial is cheap: a process of several trials has the kernels of the script's own formats.
    """
    settings = state.changed(loader)
    if settings.differences(state.best).keys() <= SMALL_GAINS:
        return loader
    state.consider(loader, LOADER_STAGE, favour=state.limits.noise_ratio)
    return {} if settings in state.visited and state.best != settings else loader


def _searches_kernels(state: PlanState) -> bool:
    """True when the baseline left out much time for cuDNN's searches, and other formats would leave out as much."""
    baseline = state.visited.baseline
    return baseline is not None and baseline.kernel_search_s >= LONG_SEARCH_S


def _usual_build(state: PlanState) -> dict[str, Value]:
    """The changes to a wholly compiled model; without the time, to compiled blocks, or none."""
    for mode in (CompileMode.DEFAULT, CompileMode.REGIONAL):
        if mode in state.limits.early_builds and mode in _allowed_modes(state):
            return {"compile": True, "compile_mode": mode.value}
    return {}


def _compile(state: PlanState) -> None:
    """On an accelerator: tries a compiled model beside the usual compute gains, unless the loader is the limit.

    The usual gains may be slower alone: autocast adds launches, and a compiled model has few.
    """
    mode = _compile_mode(state)
    if mode is None:
        return
    changes = {**_usual_compute(state), "compile": True, "compile_mode": mode.value}
    settings = state.changed(changes)
    compiles_otherwise = bool({"compile", "compile_mode"} & settings.differences(state.best).keys())
    if compiles_otherwise and settings.compile and state.is_open(settings) and not state.is_pointless(settings):
        state.measured(settings, COMPILE_STAGE)


def _compile_mode(state: PlanState) -> CompileMode | None:
    """The first mode to try: CUDA graphs for an idle device, else the quickest build allowed for the model.

    None without time for an allowed mode.
    """
    allowed = _allowed_modes(state)
    if not _is_idle(_beside_usual_compute(state)):
        allowed -= {*GRAPHS}
    return next((mode for mode in state.limits.early_builds if mode in allowed), None)


def _allowed_modes(state: PlanState) -> set[Value]:
    """The modes allowed for the model."""
    return {*state.choices("compile_mode"), CompileMode.DEFAULT}


def _launches_bind(state: PlanState) -> bool:
    """True when the device idles although the loader keeps up: a step waits for the host's launches."""
    trial = _beside_usual_compute(state)
    return trial is not None and _is_idle(trial) and (trial.data_wait_fraction or 0.0) < LOADER_BOUND_WAIT


def _is_idle(trial: FinishedTrial | None) -> bool:
    """True when the device idled for a good part of a trial; False when unknown."""
    utilization = trial.device_utilization if trial is not None else None
    return utilization is not None and utilization < IDLE_UTILIZATION


def _beside_usual_compute(state: PlanState) -> FinishedTrial | None:
    """The latest trial with the usual compute gains and a known utilization, else the baseline.

    Half precision makes kernels shorter, and more workers feed a starved device.
    """
    compute = _usual_compute(state)
    wanted = state.changed(compute)  # Canonical, as all trials: one of the changes may make another inert.
    alike = [
        trial
        for trial in state.visited.sound
        if trial.device_utilization is not None
        and not trial.settings.differences(wanted).keys() & (compute.keys() - SLOW_STARTS)
    ]
    return alike[-1] if alike else state.visited.baseline


def _usual_compute_again(state: PlanState) -> bool:
    """Tries the usual compute gains again at a grown micro-batch, if they failed or were left out before.

    Small micro-batches wait for the host's launches, whatever the speed of the compute.

    Returns:
        True when the settings with the usual gains compute fastest.
    """
    lead = state.lead
    settings = state.changed(_usual_compute(state), lead)
    has_grown = (lead.batch_size or 0) >= GROWN_RATIO * (state.space.script_settings.batch_size or 1)
    is_sound = any(trial.settings.precision is settings.precision for trial in state.visited.sound)
    if not (has_grown and is_sound) or _is_loader_limited(state) or not state.is_open(settings):
        return False
    state.measured(settings, "usual_again")
    return state.lead == settings


def _usual_compute(state: PlanState) -> dict[str, Value]:
    """The changes that usually make an accelerator compute faster."""
    own = state.best.precision.value
    half = next((value for value in HALF if value in state.choices("precision")), own)
    changes: dict[str, Value] = {
        "precision": own if own in HALF else half,
        **{setting.name: usual.value for setting, usual in USUAL if setting.effect is Effect.COMPUTE},
    }
    return _without_new_process(state, changes)


def _without_new_process(state: PlanState, changes: dict[str, Value]) -> dict[str, Value]:
    """The changes without a new process, in a search without time for one; otherwise all changes.

    Two ranks of a Trainer took 28 s to start again for `gradient_as_bucket_view`, of a search of two minutes.
    """
    own = state.space.script_settings
    return {name: value for name, value in changes.items() if state.limits.can_go_on(state.changed({name: value}, own))}


def _precision(state: PlanState) -> None:
    """Tries other number formats."""
    state.try_others("precision", "precision")


def _one_by_one(state: PlanState) -> None:
    """On a CPU: tries the settings of `ONE_BY_ONE`, one after another."""
    for setting in ONE_BY_ONE:
        state.try_others(setting.name, setting.group.value)


def _details_of_workers(state: PlanState) -> None:
    """Settings that do nothing without workers: numbers upwards, switches on."""
    for setting in SETTINGS:
        if setting.needs_workers and not isinstance(setting.default, int | float):
            state.try_others(setting.name, "loader")
        elif setting.needs_workers and isinstance(setting.default, bool):
            state.consider({setting.name: not setting.default}, "loader")
        elif setting.needs_workers:
            state.climb(setting.name, "loader", steps=(1,))


def _own_knobs(state: PlanState) -> None:
    """Tries every value of the user's own knobs: nothing is known about knobs, and the user has asked for them."""
    for name in state.space.searched:
        if name.startswith(KNOB_PREFIX):
            state.try_others(name, "knobs")


def _around_the_best(state: PlanState) -> None:
    """On a CPU: tries every change of one setting with a possible gain above the noise, until nothing moves."""
    for _ in range(MAX_PASSES):
        start = state.best
        share_cores(state)
        if not state.is_fed(ratio=NEARLY_FED) and state.best.num_workers:
            _details_of_workers(state)
        _precision(state)
        grow_micro_batch(state)
        shrink_micro_batch(state)
        state.try_others("omp_wait_policy", "threads")
        _one_by_one(state)
        state.climb("grad_accum_steps", "accumulation")
        _own_knobs(state)
        if state.best == start:
            break
