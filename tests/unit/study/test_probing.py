from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.errors import EveryTrialFailedError, NoFeasibleSettingsError, UsageError
from autotune.host import cpu_device
from autotune.model.events import Notice, ProbeStarted
from autotune.model.facts import LossReduction
from autotune.model.result import ProbeResult
from autotune.protocol.job import Mode
from autotune.space.derive import derive_space
from autotune.study import probing
from autotune.study.jobs import Jobs
from autotune.study.probing import (
    WITH_NETWORK,
    WITHOUT_OUTPUTS,
    _num_parts,
    classify_reduction,
    probe_script,
    start_afresh,
)
from autotune.study.stop import StopRequest
from autotune.study.target import make_target
from autotune.units import MIB
from tests.unit.facts import cpu_machine, loader_facts, script_facts, search_spec


def classify(whole, parts, whole_norm=1.0, mean_scaled_norm=1.0):
    return classify_reduction(
        whole_loss=whole, part_losses=parts, whole_norm=whole_norm, mean_scaled_norm=mean_scaled_norm
    )


def test_a_mean_loss_has_parts_like_the_whole():
    assert classify(2.3, (2.2, 2.4)) is LossReduction.MEAN


def test_a_summed_loss_has_parts_that_add_up():
    assert classify(140.0, (72.0, 68.0), mean_scaled_norm=0.5) is LossReduction.SUM


@pytest.mark.parametrize(
    ("batch_size", "number"),
    [(4096, 16), (128, 16), (100, 10), (32, 8), (16, 4), (12, 3), (26, 2), (17, 17), (2, 2), (67, 67)],
)
def test_a_batch_is_divided_into_many_parts_of_several_samples(batch_size, number):
    assert _num_parts(batch_size) == number
    assert _num_parts(batch_size, splits_batch_norm=True) == min(n for n in range(2, 100) if batch_size % n == 0)


@pytest.mark.parametrize("num_pairs", [32, 100, 256, 4096, 32768])
@pytest.mark.parametrize("beside", [0.0, 1.0, 2.0])
def test_a_loss_of_pairs_within_the_batch_is_neither_a_mean_nor_a_sum(num_pairs, beside):
    """A contrastive loss begins near log(number of pairs); of 4,096 pairs in halves it looked like a mean."""
    num_parts = _num_parts(num_pairs)
    alone = beside * math.log(num_pairs)
    parts = [math.log(num_pairs / num_parts) + alone * (1 + 0.01 * (-1) ** number) for number in range(num_parts)]
    assert classify(math.log(num_pairs) + alone, tuple(parts)) is LossReduction.UNKNOWN


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3])
def test_a_mean_of_noisy_samples_stays_a_mean(noise):
    parts = tuple(2.3 * (1 + noise * (-1) ** number) for number in range(16))
    assert classify(2.3 * (1 + min(0.02, noise)), parts) is LossReduction.MEAN


def test_a_batch_of_a_large_prime_number_is_not_tried_in_single_samples():
    runner = Split(loader=loader_facts(batch_size=67))
    assert probe_under("1GiB", runner).loss_reduction is LossReduction.INDIVISIBLE
    assert runner.modes == [Mode.PROBE]


@pytest.mark.parametrize("parts", [(4.0, 4.2), (0.3, 0.2), (-2.3, -2.3)])
def test_parts_that_do_neither_are_unknown(parts):
    assert classify(2.3, parts) is LossReduction.UNKNOWN


def test_gradients_that_contradict_the_losses_are_unknown():
    """A script that divides its loss by the batch size it was started with has losses like a sum of its own."""
    assert classify(2.3, (2.3, 2.3), mean_scaled_norm=2.0) is LossReduction.UNKNOWN


def test_a_loss_of_zero_says_nothing():
    assert classify(0.0, (0.0, 0.0)) is LossReduction.UNKNOWN


def test_without_norms_the_losses_decide():
    assert classify(2.3, (2.3, 2.3), None, None) is LossReduction.MEAN


class OneRun:
    """A run of a probe that is over."""

    def __init__(self, result):
        self._result = result

    def poll(self):
        return True

    def wait(self):
        return None

    def probe_result(self):
        return self._result


class Room:
    """A runner in which a script fits under caps from so many bytes on; keeps the caps that were tried."""

    def __init__(self, needed_bytes):
        self.needed_bytes, self.caps = needed_bytes, []

    def start(self, job):
        self.caps.append(job.cap_bytes)
        if job.cap_bytes < self.needed_bytes:
            return OneRun(ProbeResult(facts=None, reason="It held too much.", is_out_of_memory=True))
        return OneRun(ProbeResult(facts=script_facts(loader=None)))


def probe_under(cap, runner, *, ends_by=None, **changes):
    target = make_target(replace(search_spec(), memory_cap=cap), cpu_device())
    jobs = Jobs(spec=replace(search_spec(), **changes), target=target)
    return probe_script(jobs, runner, lambda: None, StopRequest(), ends_by=ends_by)


def test_a_script_that_does_not_fit_under_the_cap_is_probed_where_it_has_room():
    runner = Room(needed_bytes=200 * MIB)
    assert probe_under("100MiB", runner) is not None
    assert len(runner.caps) == 2 and runner.caps[0] == 100 * MIB < runner.caps[1]


def test_a_device_that_is_shared_is_never_probed_above_the_cap():
    runner = Room(needed_bytes=200 * MIB)
    with pytest.raises(NoFeasibleSettingsError, match="It held too much"):
        probe_under("100MiB", runner, share_gpu=True)
    assert runner.caps == [100 * MIB]


class Refused:
    """A runner of a script that trains once it can write to a folder, and once what its first run wrote is gone."""

    def __init__(self):
        self.modes, self.known, self.is_clean = [], [], False

    def start(self, job):
        self.modes.append(job.mode)
        if not self.known:
            printed = "OSError: [Errno 75] Value too large for defined data type: '/group/out'"
            return OneRun(ProbeResult(facts=None, reason="It ended with exit code 1.", log_tail=printed))
        if job.mode is Mode.SPLIT_PROBE and not self.is_clean:
            return OneRun(ProbeResult(facts=None, reason="It ended with exit code 1."))
        return OneRun(ProbeResult(facts=script_facts(), first_losses=(2.2, 2.4) * 8))

    def learn(self, printed):
        """Folders that the output names, where they are not known already."""
        new = [Path("/group")] if "/group/out" in printed and not self.known else []
        self.known += new
        return tuple(new)

    def clean(self):
        """Forgets what the first run wrote."""
        self.is_clean = True
        return True


def test_a_probe_is_run_again_where_layers_did_not_reach_and_where_its_own_outputs_are_in_the_way():
    runner, events = Refused(), []
    jobs = Jobs(spec=search_spec(), target=make_target(search_spec(), cpu_device()))
    facts = probe_script(
        jobs,
        runner,
        lambda: None,
        StopRequest(),
        events.append,
        learn_folders=runner.learn,
        afresh=runner.clean,
    )
    assert runner.modes == [Mode.PROBE, Mode.PROBE, Mode.SPLIT_PROBE, Mode.SPLIT_PROBE]
    assert facts.loss_reduction is not LossReduction.UNKNOWN
    told = [event.message for event in events if isinstance(event, Notice)]
    assert len(told) == 1 and "/group" in told[0]


class Split:
    """A runner of a script whose loss is the mean of its parts'; whether their targets differ, as either run says."""

    def __init__(self, *, whole_varies=False, parts_vary=False, **facts):
        self.whole_varies, self.parts_vary, self.facts, self.modes = whole_varies, parts_vary, facts, []

    def start(self, job):
        self.modes.append(job.mode)
        if job.mode is Mode.PROBE:
            return OneRun(ProbeResult(facts=script_facts(loss_targets_vary=self.whole_varies, **self.facts)))
        facts = script_facts(loss_targets_vary=self.parts_vary)
        return OneRun(ProbeResult(facts=facts, first_losses=(2.2, 2.4) * 8))


class Rising:
    """A runner of a script whose schedule takes its length from the loader; keeps the kinds of runs."""

    def __init__(self):
        self.modes = []

    def start(self, job):
        self.modes.append(job.mode)
        return OneRun(ProbeResult(facts=script_facts(schedule_follows_length=True), first_losses=(2.2, 2.4) * 8))


def test_a_batch_that_may_not_be_split_anyway_is_not_split_to_see():
    runner = Rising()
    probe_under("1GiB", runner)
    assert runner.modes == [Mode.PROBE]


@pytest.mark.parametrize(("whole_varies", "parts_vary"), [(True, False), (False, True)])
def test_a_mean_over_tokens_is_told_from_one_over_samples(whole_varies, parts_vary):
    runner = Split(whole_varies=whole_varies, parts_vary=parts_vary)
    assert probe_under("1GiB", runner).loss_reduction is LossReduction.TOKEN_MEAN
    assert probe_under("1GiB", Split()).loss_reduction is LossReduction.MEAN


class SplitEnds(Split):
    """A runner whose step with the batch in parts ends without facts."""

    def __init__(self, **ending):
        super().__init__()
        super().__init__()
        self.ending = ending

    def start(self, job):
        run = super().start(job)
        return run if job.mode is Mode.PROBE else OneRun(ProbeResult(facts=None, **self.ending))


@pytest.mark.parametrize(
    ("ending", "reduction", "words"),
    [
        ({"is_time_spent": True}, LossReduction.NO_TIME, "time does not suffice"),
        ({"reason": "no"}, LossReduction.FAILED, "the script failed"),
    ],
)
def test_a_step_in_parts_that_was_not_seen_is_no_loss_that_does_not_add_up(ending, reduction, words):
    facts = probe_under("1GiB", SplitEnds(**ending))
    assert facts.loss_reduction is reduction
    reasons = dict(derive_space(facts, cpu_machine(), search_spec()).refused)
    assert words in reasons["batch_size"] and "another loss" not in reasons["batch_size"]


@pytest.mark.parametrize(("probe_s", "modes"), [(8.0, [Mode.PROBE, Mode.SPLIT_PROBE]), (12.0, [Mode.PROBE])])
def test_a_step_in_parts_leaves_the_time_of_a_verified_answer(monkeypatch, probe_s, modes):
    clock = [0.0]
    runner = SplitEnds(reason="no")
    start = runner.start

    def slow(job):
        clock[0] += probe_s
        return start(job)

    runner.start = slow
    monkeypatch.setattr("autotune.study.probing.time.monotonic", lambda: clock[0])
    probe_under("1GiB", runner, ends_by=60.0)
    assert runner.modes == modes


@pytest.mark.parametrize("option", ["-E", "-I", "-S"])
def test_a_command_that_ignores_the_environment_is_refused_before_it_is_run(option):
    runner = Room(needed_bytes=0)
    with pytest.raises(UsageError, match=f"run with {option}, which ignores the environment"):
        probe_under("1GiB", runner, command=("python", option, "train.py"))
    assert runner.caps == []


class Escapes:
    """A runner of a script that changed a user's file, and trained or not."""

    def __init__(self, facts):
        self.facts = facts

    def start(self, job):
        return OneRun(ProbeResult(facts=self.facts, reason="" if self.facts else "It crashed.", escaped=("ckpt.pt",)))


def test_files_that_the_probe_changed_are_kept_with_what_it_learned():
    assert probe_under("1GiB", Escapes(script_facts(loader=None))).escaped == ("ckpt.pt",)


def test_files_that_a_failed_probe_changed_are_named():
    with pytest.raises(EveryTrialFailedError) as failed:
        probe_under("1GiB", Escapes(None))
    assert "1 file of yours was changed or removed" in failed.value.hint and "ckpt.pt" in failed.value.hint


class Fails:
    """A runner of a script that does not get through its probe."""

    def __init__(self, reason):
        self.reason = reason

    def start(self, job):
        return OneRun(ProbeResult(facts=None, reason=self.reason))


@pytest.mark.parametrize(
    ("reason", "asks_for_cuda"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", True),
        ("RuntimeError: Found no NVIDIA driver on your system.", True),
        ("ValueError: no data at /d", False),
    ],
)
def test_a_script_that_asks_for_cuda_on_a_machine_without_is_told_so(reason, asks_for_cuda):
    with pytest.raises(EveryTrialFailedError) as failed:
        probe_under("1GiB", Fails(reason))
    assert ("The script asks for CUDA, and torch finds no GPU here." in failed.value.hint) is asks_for_cuda


@pytest.mark.parametrize(
    ("has_outputs", "was_cut_off", "messages"),
    [
        (True, True, [WITHOUT_OUTPUTS, WITH_NETWORK]),
        (True, False, [WITHOUT_OUTPUTS]),
        (False, True, [WITH_NETWORK]),
        (False, False, []),
    ],
)
def test_what_a_failed_run_changes_for_later_runs_is_told(has_outputs, was_cut_off, messages):
    class Space:
        def keep_only_caches(self):
            return has_outputs

        def connect(self):
            return was_cut_off

    events = []
    assert start_afresh(Space(), events.append) is bool(messages)
    assert [event.message for event in events] == messages


def test_places_out_of_reach_are_named_before_the_probe(monkeypatch):
    found = []
    places = tuple(Path(f"/group/{n}") for n in range(5))
    workspace = SimpleNamespace(out_of_reach=places, forget_probe=lambda: None, probe_is_through=lambda: None)
    target = SimpleNamespace(device=None)
    monkeypatch.setattr(probing, "probe_script", lambda *_, **__: pytest.fail("the probe began"))
    with pytest.raises(pytest.fail.Exception, match="the probe began"):
        probing.probe(search_spec(), target, workspace, lambda *_: None, StopRequest(), found.append)
    notice, begun = found
    assert isinstance(notice, Notice) and notice.is_warning
    assert "cannot write to /group/0, /group/1, /group/2, and more" in notice.message
    assert "--writable" in notice.message and isinstance(begun, ProbeStarted)
