from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.cli.dry_run import plan_text
from autotune.errors import UsageError
from autotune.lab.function_runner import FunctionRunner
from autotune.search.plan_state import PlanLimits
from autotune.space.derive import derive_space
from autotune.study.preview import NUM_FIRST, first_settings, preview
from autotune.units import GIB
from tests.cli.plans import plan
from tests.unit.facts import cpu_machine, gpu_machine, loader_facts, script_facts, search_spec


def first(machine, **asked):
    space = derive_space(script_facts(device=machine.device.kind), machine, search_spec(**asked))
    limits = PlanLimits(usable_cpus=machine.usable_cpus, cap_bytes=8 * GIB)
    return space, first_settings(space, limits)


@pytest.mark.parametrize("machine", [cpu_machine(), gpu_machine()])
def test_the_beginning_of_the_plan_is_shown_from_the_baseline_on(machine):
    space, shown = first(machine)
    assert shown[0] == (space.script_settings.canonical(device_is_cpu=machine.device.is_cpu), "baseline")
    assert 1 < len(shown) == len({settings for settings, _ in shown}) <= NUM_FIRST
    assert all(space.why_not(settings) is None for settings, _ in shown)


def test_on_an_accelerator_what_follows_the_usual_settings_is_left_to_their_figures():
    _, shown = first(gpu_machine())
    assert [stage for _, stage in shown][:2] == ["baseline", "usual"]


def test_a_plan_that_is_shorter_is_shown_in_full():
    everything = ("intra_op_threads", "omp_wait_policy", "precision", "channels_last", "batch_size")
    own = ("2", "default", "fp32", "false", "64")
    _, shown = first(cpu_machine(), fixed=tuple(zip(everything, own, strict=True)), ranges=(("num_workers", "0,1"),))
    assert [settings.num_workers for settings, _ in shown][:2] == [0, 1]
    assert len(shown) < NUM_FIRST


@pytest.mark.parametrize("name", [" photos", "pho\ntos", "x" * 513])
def test_a_name_that_no_database_takes_is_refused_by_a_dry_run_too(name):
    with pytest.raises(UsageError, match="cannot be the name of a study"):
        preview(search_spec(study=name), run_probe=False, on_event=lambda event: None)


def test_the_baseline_of_a_script_that_pins_on_a_cpu_is_called_your_settings():
    facts = script_facts(loader=loader_facts(pin_memory=True))
    space = derive_space(facts, cpu_machine(), search_spec())
    assert space.script_settings.pin_memory
    first = first_settings(space, PlanLimits(usable_cpus=2.0, cap_bytes=GIB))
    made = plan(search_spec(), run_probe=True)
    made.probe, made.first = replace(made.probe, facts=facts, natural=space.script_settings), first
    assert "  baseline: your settings\n" in plan_text(made)


def test_a_dry_run_says_how_long_its_probe_took_and_not_when_the_first_step_was_made(tmp_path, monkeypatch):
    now = [100.0]

    class Slow(FunctionRunner):
        def start(self, job):
            assert job.ends_by == 100.0 + 60.0
            now[0] += 12.5
            return super().start(job)

    runner = Slow(lambda settings: 1.0, script_facts(first_step_s=3.0, num_batch_norms=1))
    monkeypatch.setattr("autotune.study.preview.time.monotonic", lambda: now[0])
    monkeypatch.chdir(tmp_path)
    spec = search_spec(cwd=str(tmp_path), script="train.py", budget_s=60.0, device="cpu")
    found = preview(spec, run_probe=True, on_event=lambda event: None, open_runner=lambda *_: runner)
    assert found.probe is not None and found.probe.wall_s == 12.5
