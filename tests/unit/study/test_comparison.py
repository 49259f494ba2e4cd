"""What may be compared with what, and by which figure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from autotune.errors import UsageError
from autotune.host import HostFingerprint
from autotune.model.search_result import Status
from autotune.model.study_comparison import Yardstick
from autotune.protocol.codec import to_plain
from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.study.comparison import comparison, found_by_config, found_by_study

from ..emit.example import tuned_config
from ..facts import script_facts
from ..report.examples import BASELINE, BEST, NATURAL, search_result

HOST = HostFingerprint(cpu="EPYC", usable_cpus=8, memory_bytes=64 << 30, system="linux", device="H200", torch="2.13.0")
FINGERPRINT = {
    "script": "ab12",
    "arguments": "cd34",
    "maps": [],
    "samples_per_step": None,
    "versions": {"autotune": "0.1.0"},
    "modules": {"model": "ef56"},
    "host": to_plain(HOST),
    "space": {"anything": 1},
    "memory_cap": "16GiB",
}


def record(name="train", result=None, **fingerprint):
    result = result or search_result()
    return StudyRecord(
        name=name,
        spec=SearchSpec(command=("python", "train.py"), script="/a/train.py", cwd="/a", study=name),
        fingerprint={**FINGERPRINT, **fingerprint},
        created_at=datetime(2026, 11, 20, tzinfo=UTC),
        status=result.status.value,
        memory_cap_bytes=result.memory_cap_bytes,
        facts=script_facts(),
        script_settings=NATURAL,
        result=result.document(),
    )


def found(name="train", **changes):
    return found_by_study(name, record(name, **changes))


def test_gains_over_the_same_baseline_are_compared_by_them():
    slower = search_result(speedup=(1.205, 1.2, 1.21))
    done = comparison(found("old", result=slower), found("new"))
    assert done.by is Yardstick.GAIN and done.ratio.value == pytest.approx(2.0)
    assert done.is_beyond_noise and 1.9 < done.ratio.low < done.ratio.high < 2.1


def test_without_a_baseline_the_rates_are_compared():
    over = search_result(status=Status.BASELINE_INFEASIBLE, speedup=None)
    done = comparison(found("old", result=over), found("new"))
    assert done.by is Yardstick.RATE and done.ratio.value == pytest.approx(1.0)


def test_a_search_that_kept_the_baseline_gained_exactly_nothing():
    kept = search_result(status=Status.NO_GAIN, best=BASELINE, speedup=None)
    done = comparison(found("kept", result=kept), found("new"))
    assert done.by is Yardstick.GAIN
    assert (done.ratio.value, done.ratio.low, done.ratio.high) == pytest.approx((2.41, 2.35, 2.47))


def test_another_space_cap_or_time_is_no_hindrance():
    wider = search_result(memory_cap_bytes=1 << 40)
    assert comparison(found("old"), found("new", result=wider, space={"other": 2}, memory_cap="1TiB"))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"script": "other"}, "script: its file changed"),
        ({"arguments": "other"}, "arguments: the command changed"),
        ({"modules": {"model": "other"}}, "modules: model, which the script imports, changed"),
        ({"maps": [["storage", "--s={}"]]}, "--map: "),
        ({"samples_per_step": 3.0}, "--samples-per-step: None, not 3.0"),
        ({"versions": {"autotune": "0.2.0"}}, "autotune: 0.1.0, not 0.2.0"),
        ({"host": to_plain(replace(HOST, torch="2.14.0"))}, "torch: 2.13.0, not 2.14.0"),
        ({"host": to_plain(replace(HOST, device="H100"))}, "device: H200, not H100"),
        ({"host": to_plain(replace(HOST, usable_cpus=4))}, "usable_cpus: 8.0, not 4.0"),
        (
            {"host": to_plain(replace(HOST, memory_bytes=32 << 30))},
            f"memory_bytes: {64 << 30}, not {32 << 30}",
        ),
    ],
)
def test_what_makes_figures_mean_something_else_is_named_by_its_field(changes, field):
    with pytest.raises(UsageError, match="train and new cannot be compared") as caught:
        comparison(found("train"), found("new", **changes))
    assert field in caught.value.message


def test_all_fields_that_differ_are_named_at_once():
    other = found("new", script="x", host=to_plain(replace(HOST, torch="2.14.0", device="H100")))
    with pytest.raises(UsageError) as caught:
        comparison(found("train"), other)
    assert all(f"{name}: " in caught.value.message for name in ("script", "torch", "device"))


def test_another_effective_batch_trains_something_else():
    larger = replace(BEST, settings=replace(BEST.settings, batch_size=256))
    with pytest.raises(UsageError, match="effective batch: 64, not 256"):
        comparison(found("train"), found("free", result=search_result(best=larger)))
    split = replace(BEST, settings=replace(BEST.settings, batch_size=16, grad_accum_steps=4))
    assert comparison(found("train"), found("split", result=search_result(best=split)))


def test_a_study_that_has_not_ended_has_no_figure():
    running = replace(record(), status="running", result=None)
    with pytest.raises(UsageError, match="has no finals yet") as caught:
        found_by_study("train", running)
    assert "autotune resume train" in caught.value.hint
    failed = record(result=search_result(status=Status.ALL_FAILED, best=None, baseline=None, speedup=None))
    with pytest.raises(UsageError, match="found nothing"):
        found_by_study("train", failed)


def test_a_config_is_compared_by_what_its_file_knows():
    config = tuned_config()
    assert comparison(found_by_config("a.yaml", config), found_by_config("b.yaml", config)).ratio.value == 1.0
    other = tuned_config(script_digest="another")
    with pytest.raises(UsageError, match="script: "):
        comparison(found_by_config("a.yaml", config), found_by_config("b.yaml", other))
    with pytest.raises(UsageError, match="no figure to compare"):
        found_by_config("a.yaml", tuned_config(interval=(0.0, 3140.0)))


def test_what_only_one_side_knows_is_not_compared():
    config = tuned_config(script_digest="ab12", provenance_host=HOST, provenance_autotune="0.1.0")
    study = found("train")
    batch = study.side.settings.effective_batch()
    assert config.settings.effective_batch() == batch
    assert comparison(found_by_config("a.yaml", config), study)


def test_rates_of_steps_are_not_compared_with_rates_of_samples():
    steps, samples = tuned_config(samples_unit="steps"), tuned_config()
    with pytest.raises(UsageError, match="unit: steps, not samples"):
        comparison(found_by_config("a.yaml", steps), found_by_config("b.yaml", samples))
