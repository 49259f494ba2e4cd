"""Whatever way a script feeds itself: a trial measures it with its settings in force, or it is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import BatchSamplerKind, ScriptFacts
from autotune.protocol.job import Mode
from autotune.trial.meter.phase_rules import DRAIN_QUEUES
from autotune.trial.probe.foreign_loaders import UNSEEN_QUEUE
from tests.integration.trial import loops
from tests.integration.trial.ground import Ground, Run, space_of

PATIENT = WindowRule(half_width_ratio=1e-6, min_window_s=60.0, max_window_s=60.0)


def script(ground: Ground, loop: str, **values: object) -> Path:
    for name, value in values.items():
        loop = loop.replace(name, repr(value))
    return ground.script(loops.PRELUDE + loop)


def assert_in_force(run: Run, **settings: object) -> None:
    assert run.outcome == "ok", f"{run.verdict} {run.output}"
    assert {name: run.rank.observed[name] for name in settings} == settings


MEASURED = {
    "plain": loops.PLAIN,
    "a loader per epoch": loops.PER_EPOCH,
    "a dataset per epoch": loops.DATASET_PER_EPOCH,
    "one helper for training and validation": loops.HELPER,
    "a subclass that keeps its iterator": loops.SUBCLASS,
    "a loader whose iterator wraps torch's": loops.WRAPPED_ITERATOR,
    "a library that builds its own loader": loops.LIBRARY,
    "a batch sampler of its own": loops.BATCH_SAMPLER,
    "reads all first": loops.READS_FIRST.replace("PERSISTENT", "False").replace("WORKERS", "0"),
    "looks at a batch first": loops.LOOKS_FIRST.replace("PERSISTENT", "False").replace("WORKERS", "0"),
    "an epoch shorter than the queue": loops.TINY,
    "nested batches changed in place": loops.NESTED_IN_PLACE,
    "validates between epochs": loops.VALIDATES,
    "the last batch is smaller": loops.LAST_BATCH_IS_SMALLER,
    "takes a batch ahead": loops.LOOKS_AHEAD,
    "takes two batches at once": loops.TWO_AT_ONCE,
    "begins again at the end": loops.BEGINS_AGAIN,
    "a loader without batching": loops.NO_BATCHING,
    "a stream whose first worker has nothing": loops.FIRST_WORKER_HAS_NOTHING,
    "several backward passes": loops.TWO_BACKWARDS,
    "accumulates by itself": loops.OWN_ACCUMULATION,
    "two optimizers": loops.GAN,
    "a closure": loops.CLOSURE,
    "an update by hand": loops.BY_HAND,
    "a schedule that ends": loops.ONE_CYCLE,
    "schedules that fail and turn negative": loops.RISING_TABLE,
    "replaces its optimizer": loops.REPLACES_OPTIMIZER,
    "layers without a shape that are never called": loops.HAS_SPARE_LAYERS,
    "a wrapper that sets attributes on its model too": loops.SETS_ON_BOTH,
}


FURTHER = {
    "a dataset per epoch",
    "takes two batches at once",
    "a loader without batching",
    "the last batch is smaller",
    "several backward passes",
    "accumulates by itself",
    "two optimizers",
    "replaces its optimizer",
}
"""Run with the slow ones: their ways are near to others'."""


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(loop, id=name, marks=[pytest.mark.slow] if name in FURTHER else [])
        for name, loop in MEASURED.items()
    ],
)
def test_a_trial_with_two_workers_is_measured_with_its_settings_in_force(ground: Ground, loop: str) -> None:
    path = script(ground, loop)
    run = ground.trial(path, ground.probe(path), num_workers=2, prefetch_factor=4)
    assert_in_force(run, num_workers=2, prefetch_factor=4)
    assert run.rank.observed.get("batch_size", 8) == 8
    assert not run.rank.is_primed


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize("loop", [loops.READS_FIRST, loops.LOOKS_FIRST], ids=["reads", "looks"])
def test_a_script_that_reads_before_it_trains_is_not_held_up(
    ground: Ground, loop: str, is_persistent: bool, num_workers: int
) -> None:
    """Its own workers are already persistent, or they are so in the trial."""
    own_workers = 1 if is_persistent else 0
    path = script(ground, loop, PERSISTENT=is_persistent, WORKERS=own_workers)
    facts = ground.probe(path)
    assert facts.loader is not None
    assert facts.loader.num_passes_before_training == 2
    assert facts.loader.is_read_before_training is (loop == loops.READS_FIRST)
    assert facts.num_micro_batches_per_step == 1
    run = ground.trial(path, facts, num_workers=num_workers, persistent_workers=num_workers > 0, limit_s=20)
    assert_in_force(run, num_workers=num_workers)
    assert not run.is_timed_out
    assert not run.rank.is_primed


@pytest.mark.parametrize(("num_workers", "length"), [(1, 4000), (1, 30), (2, 30)])
def test_a_stream_is_measured_with_the_workers_that_it_shares_itself_among(
    ground: Ground, num_workers: int, length: int
) -> None:
    """Also where its epochs are so short that no window fits between two ends."""
    path = script(ground, loops.ITERABLE, WORKERS=1, LENGTH=length)
    facts = ground.probe(path)
    run = ground.trial(path, facts, num_workers=num_workers)
    assert_in_force(run, num_workers=num_workers)


def test_a_script_that_keeps_one_batch_is_measured_in_steps(ground: Ground) -> None:
    path = script(ground, loops.KEEPS_ONE_BATCH)
    facts = ground.probe(path)
    assert facts.loader is None
    assert dict(space_of(facts).refused)["num_workers"] == "no torch DataLoader was seen to train"
    assert ground.trial(path, facts).outcome == "ok"


def test_a_step_that_evaluates_its_closure_for_ever_is_measured_by_its_evaluations(ground: Ground) -> None:
    path = script(ground, loops.CLOSURE_WITHOUT_LOADER)
    facts = ground.probe(path)
    assert facts.uses_closure and facts.counts_evaluations
    assert facts.num_backwards_per_step == 1
    assert "evaluations of the optimizer's closure are counted" in dict(space_of(facts).refused)["samples_per_step"]
    run = ground.trial(path, facts)
    assert run.outcome == "ok", f"{run.verdict} {run.output}"
    assert run.rank.num_steps > 1
    counted = ground.counted(path, facts, window_s=0.5)
    assert counted.outcome == "ok", f"{counted.verdict} {counted.output}"


def test_evaluations_for_a_loaders_batch_are_one_step(ground: Ground) -> None:
    facts = ground.probe(script(ground, loops.CLOSURE))
    assert facts.uses_closure and not facts.counts_evaluations


def test_a_script_with_several_steps_per_batch_is_measured_in_samples(ground: Ground) -> None:
    path = script(ground, loops.INNER_STEPS)
    facts = ground.probe(path)
    assert facts.loader is not None
    assert_in_force(ground.trial(path, facts, num_workers=1), num_workers=1)


def test_a_stream_that_splits_itself_gets_its_first_workers(ground: Ground) -> None:
    path = script(ground, loops.ITERABLE, WORKERS=0, LENGTH=400)
    facts = ground.probe(path)
    assert "num_workers" not in dict(space_of(facts).refused)
    assert_in_force(ground.trial(path, facts, num_workers=2), num_workers=2)


def test_workers_for_a_stream_that_every_worker_would_repeat_are_refused(ground: Ground) -> None:
    whole = loops.ITERABLE.replace("worker.id, worker.num_workers", "0, 1").replace(
        "torch.utils.data.get_worker_info()", "None"
    )
    facts = ground.probe(script(ground, whole, WORKERS=0, LENGTH=400))
    assert "every worker would read all of Stream" in dict(space_of(facts).refused)["num_workers"]


def test_a_script_that_ends_early_is_refused_by_name(ground: Ground) -> None:
    path = script(ground, loops.ENDS_EARLY)
    run = ground.trial(path, ground.probe(path), num_workers=2)
    assert run.outcome == "invalid"
    assert run.verdict is not None and run.verdict.reason.startswith("The script ended before enough was measured")
    assert "through" in run.output


def test_a_loader_that_is_read_in_a_thread_is_measured_with_its_queue_drained(ground: Ground) -> None:
    path = script(ground, loops.IN_A_THREAD, EPOCHS=2000)
    facts = ground.probe(path)
    assert facts.notes == ("reads_ahead", "no_convolution")
    assert facts.num_micro_batches_per_step == 1
    run = ground.trial(path, facts, num_workers=2)
    assert_in_force(run, num_workers=2)
    assert run.rank.is_primed


@pytest.mark.parametrize("changes", [{"precision": "bf16"}, {"batch_size": 4, "grad_accum_steps": 2}])
def test_a_loader_that_is_read_in_a_thread_leaves_precision_and_steps_to_the_one_that_trains(
    ground: Ground, changes: dict[str, Any]
) -> None:
    path = script(ground, loops.IN_A_THREAD, EPOCHS=6)
    facts = ground.probe(path)
    plain, _ = ground.train(path, facts).said
    losses, is_autocast_left_open = ground.train(path, facts, **changes).said
    assert len(losses) == len(plain) * (2 if "batch_size" in changes else 1)
    assert sum(losses[-12:]) / 12 == pytest.approx(sum(plain[-12:]) / 12, rel=0.05)
    assert not is_autocast_left_open


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_in_the_dataset_is_the_trials_error(ground: Ground, num_workers: int) -> None:
    path = script(ground, loops.FAILS_IN_ITS_DATASET, WORKERS=1, TIMEOUT=5)
    facts = ground.probe(path)
    run = ground.trial(path, facts, num_workers=num_workers, limit_s=20)
    assert run.outcome == "crashed"
    assert run.verdict is not None and "ValueError" in run.verdict.reason


def test_real_training_ends_with_its_schedule_as_it_would_without_us(ground: Ground) -> None:
    path = script(ground, loops.ONE_CYCLE)
    run = ground.train(path, ground.probe(path))
    assert run.code == 1
    assert "Tried to step 13 times. The specified number of total steps is 12" in run.output


def test_without_a_loader_steps_are_measured(ground: Ground) -> None:
    path = script(ground, loops.NO_LOADER)
    facts = ground.probe(path)
    assert facts.loader is None
    assert dict(space_of(facts).refused)["num_workers"] == "no torch DataLoader was seen to train"
    run = ground.trial(path, facts, precision="bf16")
    assert_in_force(run, precision="bf16")
    assert not run.rank.is_primed


def test_a_reader_of_the_scripts_own_is_drained_and_the_result_marked(ground: Ground) -> None:
    path = script(ground, loops.OWN_READER)
    run = ground.trial(path, ground.probe(path))
    assert run.outcome == "ok", f"{run.verdict} {run.output}"
    assert run.rank.is_primed
    ramp = sum(block.num_steps for block in run.rank.blocks if block.phase == "ramp")
    assert ramp >= DRAIN_QUEUES * UNSEEN_QUEUE


def test_two_loaders_side_by_side_get_the_same_workers(ground: Ground) -> None:
    """Public scripts for half-labelled data and for two domains have a loader of each, and were given no workers."""
    path = script(ground, loops.TWO_LOADERS)
    facts = ground.probe(path)
    assert facts.loader is not None and len(facts.loader.beside) == 1
    refused = dict(space_of(facts).refused)
    assert "num_workers" not in refused
    assert refused["batch_size"] == "several loaders train side by side"
    own = ground.trial(path, facts)
    assert own.outcome == "ok" and "workers 0 0" in own.output
    run = ground.trial(path, facts, num_workers=2)
    assert_in_force(run, num_workers=2)
    assert "workers 2 2" in run.output
    trained = ground.train(path, facts, num_workers=2, limit_s=10.0)
    assert "workers 2 2" in trained.output and "in force: num_workers 2" in trained.output


def test_two_loaders_with_different_settings_are_refused_by_name(ground: Ground) -> None:
    text = loops.TWO_LOADERS.replace("Data(96), batch_size=8", "Data(96), batch_size=8, num_workers=1")
    refused = dict(space_of(ground.probe(script(ground, text))).refused)
    assert refused["num_workers"].startswith("several loaders train side by side, differ in settings or kind")


def test_a_loader_beside_that_keeps_other_workers_is_no_measurement(ground: Ground) -> None:
    text = loops.TWO_LOADERS.replace("    for (x, y)", "    vars(unlabelled)['num_workers'] = 0\n    for (x, y)")
    path = script(ground, text)
    run = ground.trial(path, ground.probe(path), num_workers=1, limit_s=20.0)
    assert run.outcome == "invalid" and run.verdict is not None
    assert "the loaders that train side by side have different values" in run.verdict.reason


def test_waits_for_every_loader_count_and_the_rate_of_compute_alone_has_none(ground: Ground) -> None:
    text = loops.SLOW_DATA + loops.TWO_LOADERS
    for place in ("DataLoader(Data(),", "DataLoader(Data(96),"):
        path = script(ground, text.replace(place, place.replace("(Data", "(Slow")))
        run = ground.trial(path, ground.probe(path))
        assert run.outcome == "ok", run.output
        window = [block for block in run.rank.blocks if block.phase == "window"]
        duration_s = sum(block.duration_s for block in window)
        assert sum(block.data_wait_s for block in window) > 0.5 * duration_s, place
        alone = run.rank.compute_samples_per_second
        assert alone is not None and alone > 2 * sum(block.num_samples for block in window) / duration_s, place


def test_workers_of_one_loader_say_nothing_of_waits_for_another(ground: Ground) -> None:
    """They only fill their queue meanwhile: counted as delivered, their batches made the rate half too high."""
    text = (
        (loops.SLOW_DATA + loops.TWO_LOADERS)
        .replace("(Data(),", "(Slow(),")
        .replace("size=8)", "size=8, num_workers=1)")
    )
    path = script(ground, text)
    run = ground.trial(path, ground.probe(path))
    assert run.outcome == "ok", run.output
    assert {block.num_built for block in run.rank.blocks} == {None}


def test_a_first_batch_beside_that_cannot_be_read_holds_nobody_up(ground: Ground) -> None:
    path = script(ground, loops.BROKEN_BESIDE)
    facts = ground.probe(path)
    assert facts.loader is not None and facts.loader.beside
    assert not ground.trial(path, facts, limit_s=30.0).is_timed_out


def test_loaders_that_train_one_after_the_other_have_their_turns_before_the_window_too(ground: Ground) -> None:
    path = script(ground, loops.ONE_AFTER_THE_OTHER)
    run = ground.trial(path, ground.probe(path), num_workers=1, limit_s=30.0)
    assert run.outcome == "ok", f"{run.verdict} {run.output}"


def test_every_loader_begins_anew_where_the_start_of_an_epoch_is_measured(ground: Ground) -> None:
    path = script(ground, loops.LONG_SIDE_BY_SIDE)
    facts = ground.probe(path)
    run = ground.trial(path, facts)
    assert run.outcome == "ok" and run.rank.epoch_end_s is not None, run.output
    assert [run.output.count(f"begins {name}") for name in ("labelled\n", "unlabelled\n")] == [2, 2]


def test_a_script_may_give_its_config_to_one_of_two_loaders(ground: Ground) -> None:
    path = script(ground, loops.CONFIG_FOR_ONE_OF_TWO)
    facts = ground.probe(path)
    run = ground.trial(path, facts, num_workers=1, persistent_workers=True)
    assert_in_force(run, num_workers=1)
    assert "workers 0 1" in run.output


def test_a_loader_whose_first_epoch_is_replayed_for_ever_is_refused_by_name(ground: Ground) -> None:
    """A window lies in that first epoch: workers look worth what they are not worth in any other."""
    kept = ground.probe(ground.script(loops.PRELUDE + loops.REPLAYS.replace("BATCHES", "itertools.cycle(loader)")))
    assert "itertools.cycle" in dict(space_of(kept).refused)["num_workers"]
    assert "precision" not in dict(space_of(kept).refused)
    anew = "itertools.chain.from_iterable(itertools.repeat(loader))"
    read = ground.probe(ground.script(loops.PRELUDE + loops.REPLAYS.replace("BATCHES", anew)))
    assert "num_workers" not in dict(space_of(read).refused)


def test_a_loader_that_is_built_elsewhere_in_the_trial_is_named(ground: Ground) -> None:
    path = ground.script(loops.PRELUDE + "from pathlib import Path\nPROBED = Path('probed')\n" + loops.OTHER_PLACE)
    facts = ground.probe(path)
    run = ground.trial(path, facts, num_workers=2, limit_s=20)
    assert run.outcome == "invalid"
    assert run.verdict is not None
    assert run.verdict.reason.startswith("Asked for num_workers 2, in force was unknown, since no loader was built")


def test_real_training_ends_when_its_loader_is_built_elsewhere(ground: Ground) -> None:
    path = ground.script(loops.PRELUDE + "from pathlib import Path\nPROBED = Path('probed')\n" + loops.OTHER_PLACE)
    facts = ground.probe(path)
    path.write_text(path.read_text().replace("loader = ", "\n    loader = "))
    run = ground.train(path, facts, num_workers=2)
    assert run.code == 2
    assert "NOT in force: num_workers unknown, since no loader was built where" in run.output
    assert "**cfg.loader_kwargs()" in run.output and "micro_batches" not in run.output


def test_real_training_says_once_what_is_in_force(ground: Ground) -> None:
    path = script(ground, loops.PLAIN.replace("range(1000)", "range(2)"))
    run = ground.train(path, ground.probe(path), num_workers=1, batch_size=4, grad_accum_steps=2)
    assert run.code == 0, run.output
    said = [line for line in run.output.splitlines() if line.startswith("autotune: ")]
    assert said == ["autotune: in force: num_workers 1, batch_size 4, grad_accum_steps 2"]


def test_a_script_has_started_with_its_first_step_however_long_it_evaluates_then(ground: Ground) -> None:
    """The limit on a trial's start must not count what comes between its first step and its second batch."""
    path = script(ground, loops.EVALUATES_AFTER_ITS_FIRST_STEP)
    run = ground.trial(path, ground.probe(path), num_workers=1)
    assert_in_force(run, num_workers=1)
    assert "STEPS 1" in run.output


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize("loop", [loops.COUNTS_ON_ITS_LENGTH, loops.DIVIDES_BY_WHAT_IS_LEFT])
def test_no_epoch_is_longer_than_its_loader_says(
    ground: Ground, num_workers: int, is_persistent: bool, loop: str
) -> None:
    path = script(ground, loop)
    settings = {"num_workers": num_workers, "persistent_workers": is_persistent and num_workers > 0}
    run = ground.trial(path, ground.probe(path), **settings)
    assert_in_force(run, num_workers=num_workers)


def test_a_split_batch_and_its_loader_agree_on_the_length_of_an_epoch(ground: Ground) -> None:
    path = script(ground, loops.DIVIDES_BY_WHAT_IS_LEFT)
    run = ground.trial(path, ground.probe(path), num_workers=2, batch_size=4, grad_accum_steps=2)
    assert_in_force(run, num_workers=2, batch_size=4, grad_accum_steps=2)


def test_an_error_past_the_scripts_own_epoch_is_noted_as_one(ground: Ground) -> None:
    """A trial makes short epochs longer; a script that counts by its data alone fails, and not by its settings."""
    path = script(ground, loops.COUNTS_ITS_DATA)
    run = ground.trial(path, ground.probe(path), num_workers=2)
    assert run.outcome == "crashed"
    assert run.rank.error is not None and run.rank.error.kind == "IndexError"
    assert run.rank.is_past_its_epoch


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_script_that_counts_its_data_is_measured_with_epochs_of_its_own(ground: Ground, num_workers: int) -> None:
    path = script(ground, loops.COUNTS_ITS_DATA)
    run = ground.trial(path, ground.probe(path), job={"keeps_epochs": True}, num_workers=num_workers)
    assert_in_force(run, num_workers=num_workers)
    assert run.rank.num_epoch_ends > 0


@pytest.mark.parametrize(
    "how", ["raise ValueError", "sys.exit(1)", "os._exit(1)", "os.kill(os.getpid(), 9)", "time.sleep(99)"]
)
def test_a_trial_whose_window_is_over_is_measured_whatever_its_script_does_then(ground: Ground, how: str) -> None:
    """It happens when the next epoch is begun after the window, to see what that costs."""
    path = script(ground, loops.FAILS_IN_ITS_SECOND_ITERATION.replace("HOW", how))
    run = ground.trial(path, ground.probe(path), num_workers=2, limit_s=15.0)
    assert_in_force(run, num_workers=2)
    assert run.rank.status == "measured" and run.rank.epoch_end_s is None
    assert "second iteration" in run.output


def test_a_script_that_ends_by_itself_keeps_most_of_its_steps_for_the_window(ground: Ground) -> None:
    path = script(ground, loops.ENDS_AFTER_STEPS, NUM_STEPS=200, STEP_S=0.005)
    facts = ground.probe(path)
    run = ground.trial(path, facts, num_workers=2, job={"script_steps": 200, "window": PATIENT})
    assert_in_force(run, num_workers=2)
    assert run.rank.status == "ended"
    early = sum(block.num_steps for block in run.rank.blocks if block.phase in ("warmup", "compute"))
    assert 3 <= early <= 75
    assert run.rank.num_steps == 200


def test_an_error_is_reported_past_a_hook_of_the_scripts_own(ground: Ground) -> None:
    path = script(ground, loops.OWN_HOOK)
    run = ground.trial(path, ground.probe(path))
    assert run.outcome == "out_of_memory"
    assert "a fine traceback" in run.output


def of_split(facts: ScriptFacts) -> str:
    """Why the batch cannot be split; empty when it can."""
    space = space_of(facts)
    assert bool(dict(space.refused).get("batch_size")) is (len(space.allowed["split"]) == 1)
    return dict(space.refused).get("batch_size", "")


def test_an_ordinary_script_may_split_its_batch(ground: Ground) -> None:
    facts = ground.probe(script(ground, loops.PLAIN))
    assert (facts.num_optimizers, facts.uses_closure, facts.num_backwards_per_step) == (1, False, 1)
    assert of_split(facts) == ""


@pytest.mark.parametrize(
    ("loop", "num_optimizers", "num_backwards", "reason"),
    [
        (loops.GAN, 2, 3, "the script steps 2 optimizers, whose gradients would mix"),
        (loops.RARE_SECOND_OPTIMIZER, 2, 1, "the script steps 2 optimizers, whose gradients would mix"),
        (loops.CLOSURE, 1, 3, "the script steps with a closure"),
        (loops.BY_HAND, 0, 1, "no torch optimizer steps: the script updates its parameters by hand"),
        (loops.TWO_BACKWARDS, 1, 2, "the script runs 2 backward passes per optimizer step"),
        (
            *(loops.OWN_ACCUMULATION, 1, 3),
            "the script accumulates by itself, 3 micro-batches per step, in a loop of a shape of its own",
        ),
    ],
    ids=["GAN", "rare second optimizer", "closure", "by hand", "two backward passes", "own accumulation"],
)
def test_accumulation_is_refused_by_name_where_backward_and_step_cannot_be_taken_apart(
    ground: Ground, loop: str, num_optimizers: int, num_backwards: int, reason: str
) -> None:
    facts = ground.probe(script(ground, loop))
    assert facts.num_optimizers == num_optimizers
    assert facts.num_backwards_per_step == num_backwards
    assert facts.uses_closure is (loop == loops.CLOSURE)
    assert facts.first_grad_norm != 0.0
    assert of_split(facts) == reason


@pytest.mark.parametrize(("loop", "is_unsafe"), [(loops.PROBABILITIES, True), (loops.PLAIN, False)])
def test_a_loss_of_probabilities_is_told_from_one_that_autocast_takes(
    ground: Ground, loop: str, is_unsafe: bool
) -> None:
    assert ground.probe(script(ground, loop)).has_unsafe_loss is is_unsafe


@pytest.mark.parametrize(("num_lengths", "vary"), [(1, False), (5, True)])
def test_a_mean_over_tokens_is_told_from_one_over_samples(ground: Ground, num_lengths: int, vary: bool) -> None:
    """Of a text some tokens are left out of the loss; with all of the same length it is a plain mean."""
    path = script(ground, loops.TOKENS, NUM_LENGTHS=num_lengths)
    facts = ground.probe(path)
    assert facts.loss_targets_vary is vary
    whole, parts = facts.first_loss, ground.split_probe(path, facts, num_parts=2).first_losses[:2]
    assert whole is not None
    assert (abs(sum(parts) / 2 / whole - 1) < 1e-5) is not vary


def test_an_epochs_rest_that_fills_no_step_does_not_hide_how_many_batches_the_others_take(ground: Ground) -> None:
    """Ten batches are steps of 4, 4 and 2: their mean, of which no step is, is 3."""
    path = script(ground, loops.ACCUMULATES_WITH_A_REST)
    facts = ground.probe(path)
    assert (facts.num_micro_batches_per_step, facts.num_backwards_per_step) == (4, 4)
    assert_in_force(ground.trial(path, facts), grad_accum_steps=4)


def test_batches_that_the_script_puts_together_are_all_counted(ground: Ground) -> None:
    path = script(ground, loops.TWO_AT_ONCE)
    facts = ground.probe(path)
    assert facts.num_micro_batches_per_step == 2
    run = ground.trial(path, facts, num_workers=2)
    assert_in_force(run, num_workers=2, grad_accum_steps=2)
    assert all(block.num_samples == 16 * block.num_steps for block in run.rank.blocks)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_that_is_taken_ahead_and_left_at_an_epochs_end_is_not_counted(ground: Ground, num_workers: int) -> None:
    path = script(ground, loops.LOOKS_AHEAD_AND_COUNTS)
    facts = ground.probe(path)
    assert facts.num_micro_batches_per_step == 1
    run = ground.trial(path, facts, num_workers=num_workers)
    assert_in_force(run, num_workers=num_workers, grad_accum_steps=1)
    window = [block for block in run.rank.blocks if block.phase == "window"]
    num_steps = sum(block.num_steps for block in window)
    assert run.rank.num_epoch_ends > 2
    # The window may begin or end between a batch's taking and its use.
    assert abs(sum(block.num_samples for block in window) / 8 - num_steps) <= 1


def test_the_rate_on_one_batch_is_no_bound_where_batches_differ_in_size(ground: Ground) -> None:
    """The cached batch is a hundred times as long as the others: by it the trial loses every race, with itself too."""
    path = script(ground, loops.LENGTHS_VARY)
    facts = ground.probe(path)
    assert facts.loader is not None and facts.loader.batches_vary
    own = ground.trial(path, facts)
    assert_in_force(own, num_workers=0)
    assert own.verdict is not None and own.verdict.measurement is not None
    assert own.verdict.measurement.compute_samples_per_second is None
    beaten = own.verdict.measurement.samples_per_second / 4
    again = ground.trial(path, facts, job={"incumbent_samples_per_second": beaten})
    assert again.outcome == "ok", again.verdict


def test_the_rate_on_one_batch_is_no_bound_where_inputs_differ_in_size_within_lists(ground: Ground) -> None:
    """A detector's settings were a tenth faster than on the cached batch, and missed the finals for it."""
    path = script(ground, loops.LISTS_VARY)
    facts = ground.probe(path)
    assert facts.loader is not None and {"varying_inputs", "varying_batches"} <= set(facts.notes)
    own = ground.trial(path, facts)
    assert_in_force(own, num_workers=0)
    assert own.verdict is not None and own.verdict.measurement is not None
    assert own.verdict.measurement.compute_samples_per_second is None


def test_a_last_batch_that_is_smaller_does_not_make_batches_vary(ground: Ground) -> None:
    text = loops.PLAIN.replace("Data()", "Data(num_samples=20)")
    for change in (text, text.replace("batch_size=8, shuffle=True", "batch_sampler=BatchSampler(range(20), 8, False)")):
        facts = ground.probe(script(ground, change))
        assert facts.loader is not None and not facts.loader.batches_vary


def test_a_model_that_is_first_called_after_the_first_step_counts(ground: Ground) -> None:
    path = script(ground, loops.LATE_MODEL)
    facts = ground.probe(path)
    assert facts.num_root_modules == 2
    assert "2 modules side by side" in dict(space_of(facts).refused)["compile"]


def test_a_custom_batch_sampler_refuses_the_split_alone(ground: Ground) -> None:
    facts = ground.probe(script(ground, loops.BATCH_SAMPLER))
    assert facts.loader is not None and facts.loader.batch_sampler is BatchSamplerKind.CUSTOM
    assert "num_workers" not in dict(space_of(facts).refused)


def test_a_library_that_builds_its_own_loader_gets_the_micro_batch_too(ground: Ground) -> None:
    path = script(ground, loops.LIBRARY)
    facts = ground.probe(path)
    assert facts.loader is not None and len(facts.loader.keys) == 2
    run = ground.trial(path, facts, batch_size=4, grad_accum_steps=2, num_workers=1)
    assert_in_force(run, batch_size=4, grad_accum_steps=2, num_workers=1)


def test_real_training_follows_loaders_and_datasets_that_are_built_anew(ground: Ground) -> None:
    for loop in (loops.PER_EPOCH, loops.DATASET_PER_EPOCH, loops.HELPER):
        short = loop.replace("range(1000)", "range(4)").replace(
            "train_on(x, y)", "train_on(x, y); sizes.append(len(x))"
        )
        path = script(ground, "sizes = []\n" + short + "\nimport json; print(json.dumps(sizes))\n")
        facts = ground.probe(path)
        assert ground.train(path, facts, batch_size=4, grad_accum_steps=2).said == [4] * 96


def test_a_schedule_made_for_the_loaders_length_is_noticed(ground: Ground) -> None:
    follows = loops.ONE_CYCLE.replace("total_steps=12", "total_steps=10 * len(DATA)")
    for loop, is_noticed in ((follows, True), (loops.ONE_CYCLE, False), (loops.PLAIN, False)):
        text = loop.replace("DataLoader(Data(), batch_size=8, shuffle=True)", "DATA")
        if "loader = DATA" in text:
            text = text.replace("loader = DATA", "").replace("in loader", "in DATA")
        path = script(ground, "DATA_ = DataLoader(Data(), batch_size=8)\n" + text.replace("DATA", "DATA_"))
        assert ground.probe(path).schedule_follows_length is is_noticed


def test_what_the_first_step_holds_for_a_moment_is_in_the_peak(ground: Ground) -> None:
    num_bytes = 256 << 20
    spike = f"first = iter([0])\ntorch.ones({num_bytes})\n{loops.PLAIN}".replace(
        "train_on(x, y)", f"train_on(x, y); [torch.ones({num_bytes // 4}) for _ in first]"
    )
    path = script(ground, spike)
    run = ground.trial(path, ground.probe(path))
    assert_in_force(run, num_workers=0)
    assert run.rank.held_host_bytes is not None and run.rank.passing_host_bytes is not None
    # Four times as much before training is none of it.
    assert 0.9 * num_bytes < run.rank.passing_host_bytes < 2 * num_bytes


def test_a_loader_that_gives_no_batch_is_named_by_the_probe(ground: Ground) -> None:
    text = loops.PLAIN.replace("Data(), batch_size=8", "Data(5), drop_last=True, batch_size=8").replace("1000", "2")
    path = ground.script(loops.PRELUDE + text)
    run = ground._job(path, (), 60.0, mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    (place,) = run.rank.empty_loaders
    assert place.startswith("train.py:")


@pytest.mark.parametrize("text", [loops.LENGTHS_VARY, loops.LISTS_VARY], ids=["padded", "lists"])
def test_a_final_trains_on_the_longest_of_many_batches_and_a_trial_does_not(ground: Ground, text: str) -> None:
    """The longest comes after the window: every window would have to meet it by chance."""
    path = script(ground, text)
    facts = ground.probe(path)
    trial, final = (ground.trial(path, facts, job={"looks_at_growth": looks}) for looks in (False, True))
    assert_in_force(trial, num_workers=0)
    assert_in_force(final, num_workers=0)
    assert trial.rank.longest_batch_factor is None and trial.rank.host_growth_bytes is None
    assert final.rank.num_further_batches > 1 and final.rank.host_growth_bytes is not None
    assert final.rank.longest_batch_factor is not None and final.rank.longest_batch_factor > 1.1
    assert final.rank.blocks[-1].phase == "observed"
