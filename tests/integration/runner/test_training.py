"""Real training, from the probe on, under both protections: measured, and the user's files as they were."""

from __future__ import annotations

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import ProbeResult
from autotune.protocol.job import Mode
from autotune.space.script_settings import script_settings_of
from autotune.units import MIB
from tests.integration.runner.ground import EITHER, Ground, escaped_of


def probe(ground: Ground, *arguments: str, script: str = "trains.py") -> ProbeResult:
    job = ground.job(script, *arguments, mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    result = ground.runner.start(job).probe_result()
    ground.workspace.probe_is_through()
    return result


@pytest.mark.slow
def test_a_script_is_probed_and_measured(ground: Ground) -> None:
    probed = probe(ground)
    assert probed.facts is not None, f"{probed.reason} {probed.log_tail}"
    assert escaped_of(probed) == ()
    script_settings = script_settings_of(probed.facts)
    result = ground.run("trains.py", settings=script_settings, script_settings=script_settings, facts=probed.facts)
    assert result.outcome is Outcome.OK, f"{result.reason} {result.log_tail}"
    assert result.measurement is not None and result.measurement.samples_per_second > 0
    assert result.peak_memory_bytes is not None and result.peak_memory_bytes > 30 << 20
    assert escaped_of(result) == ()
    found = result.surroundings
    assert found is not None and found.window_s > 0.4
    assert found.foreign_cpus is None or found.foreign_cpus >= 0
    assert found.throttle_reasons == () and found.device_utilization is None
    ground.check("trains", result)


@EITHER
def test_a_validation_that_the_probe_saw_counts_though_trials_end_before_it(ground: Ground) -> None:
    probed = probe(ground, script="validates.py")
    facts = probed.facts
    assert facts is not None, f"{probed.reason} {probed.log_tail}"
    assert facts.validation_host_bytes is not None and facts.validation_host_growth_bytes is not None
    # Twice: one layer's output is held while the next layer's is made. Its input is drawn before the model is called.
    assert 512 * MIB <= facts.validation_host_growth_bytes < 640 * MIB
    assert facts.validation_host_bytes > facts.validation_host_growth_bytes + 100 * MIB
    cap_bytes = facts.validation_host_bytes - 100 * MIB
    script_settings = script_settings_of(facts)
    result = ground.run(
        "validates.py", settings=script_settings, script_settings=script_settings, facts=facts, cap_bytes=cap_bytes
    )
    assert "validated" not in result.log_tail
    assert result.ranks[0].held_host_bytes is not None and result.ranks[0].held_host_bytes < cap_bytes
    assert result.outcome is Outcome.OVER_CAP, f"{result.reason} {result.log_tail}"
    assert result.peak_memory_bytes is not None and result.peak_memory_bytes >= facts.validation_host_bytes


@pytest.mark.slow
@pytest.mark.parametrize("ground", ["layers"], indirect=True)
@pytest.mark.parametrize(
    ("how", "outcome", "reason"),
    [
        ("kills_worker", Outcome.CRASHED, "worker"),
        ("hangs_worker", Outcome.TIMED_OUT, "no optimizer step"),
        ("memory", Outcome.OUT_OF_MEMORY, "MemoryError"),
    ],
)
def test_a_fault_while_it_trains_is_known(ground: Ground, how: str, outcome: Outcome, reason: str) -> None:
    probed = probe(ground)
    assert probed.facts is not None
    script_settings = script_settings_of(probed.facts)
    result = ground.run(
        "trains.py",
        how,
        settings=script_settings,
        script_settings=script_settings,
        facts=probed.facts,
        start_limit_s=15.0,
        total_limit_s=60.0,
    )
    assert result.outcome is outcome, f"{result.reason} {result.log_tail}"
    assert reason in result.reason or reason in result.log_tail
    ground.check(f"trains: {how}", result)
