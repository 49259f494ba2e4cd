"""What a lack of memory says of other settings, and what thrashing at the cap costs."""

from __future__ import annotations

from dataclasses import replace

from autotune.model.outcome import Outcome
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.search.search_stopping import finalists
from autotune.settings import Settings
from autotune.space.derive import derive_space
from autotune.units import GIB
from tests.unit.facts import gpu_machine, script_facts, search_spec

SPACE = derive_space(script_facts(device="cuda"), gpu_machine(), search_spec())
NATURAL = SPACE.script_settings
CAP_BYTES = 8 * GIB


def trial(number: int, settings: Settings, rate: float | None = 100.0, **changes: object) -> FinishedTrial:
    values = {
        "number": number,
        "settings": settings,
        "stage": "loader",
        "outcome": Outcome.OK if rate else Outcome.OVER_CAP,
        "samples_per_second": rate,
        "peak_memory_bytes": 2 * GIB,
        "compute_samples_per_second": None,
        "data_wait_fraction": 0.0,
        "half_width_ratio": 0.01,
    }
    return FinishedTrial(**{**values, **changes})


def ruled_out(failed: FinishedTrial, settings: Settings) -> bool:
    model = MemoryModel(History([failed], NATURAL), SPACE, CAP_BYTES)
    return model.ruled_out(settings) is not None


def test_a_lack_of_device_memory_rules_out_whatever_the_workers() -> None:
    failed = trial(1, replace(NATURAL, num_workers=4, batch_size=32), None)
    assert ruled_out(failed, replace(NATURAL, num_workers=0, batch_size=32))
    assert not ruled_out(failed, replace(NATURAL, num_workers=4, batch_size=16))


def test_a_lack_of_host_memory_rules_out_as_many_workers_and_not_fewer() -> None:
    failed = trial(1, replace(NATURAL, num_workers=4, batch_size=32), None, lacks_host_memory=True)
    assert not ruled_out(failed, replace(NATURAL, num_workers=0, batch_size=32))
    assert ruled_out(failed, replace(NATURAL, num_workers=4, batch_size=32))
    assert ruled_out(failed, replace(NATURAL, num_workers=8, batch_size=32))


def test_the_device_peak_of_a_trial_that_lacked_host_memory_is_no_point_of_its_line() -> None:
    good = trial(0, replace(NATURAL, batch_size=16), peak_memory_bytes=2 * GIB)
    failed = trial(1, replace(NATURAL, batch_size=32), None, peak_memory_bytes=1, lacks_host_memory=True)
    alone = MemoryModel(History([good], NATURAL), SPACE, CAP_BYTES)
    both = MemoryModel(History([good, failed], NATURAL), SPACE, CAP_BYTES)
    asked = replace(NATURAL, batch_size=64)
    assert both.likely_peak_bytes(asked) == alone.likely_peak_bytes(asked)


def numbers(*trials: FinishedTrial) -> list[int]:
    history = History([trial(0, NATURAL, 100.0), *trials], NATURAL)
    return [finalist.number for finalist in finalists(history, noise_ratio=0.05)]


def test_thrashing_at_the_cap_loses_against_what_is_faster_than_the_baseline_without() -> None:
    fast = trial(1, replace(NATURAL, num_workers=4), 200.0, is_near_cap=True)
    calm = trial(2, replace(NATURAL, num_workers=2), 150.0)
    assert numbers(fast, calm) == [2]


def test_thrashing_at_the_cap_may_win_where_nothing_else_is_a_gain() -> None:
    fast = trial(1, replace(NATURAL, num_workers=4), 200.0, is_near_cap=True)
    slow = trial(2, replace(NATURAL, num_workers=2), 90.0)
    assert numbers(fast, slow) == [1]


def test_half_the_width_is_taken_to_need_no_more_than_the_whole_at_the_same_micro_batch() -> None:
    fp32, bf16 = (replace(NATURAL, precision=name) for name in ("fp32", "bf16"))
    small = [trial(0, replace(fp32, batch_size=2)), trial(1, replace(bf16, batch_size=2))]
    large = trial(2, replace(fp32, batch_size=32), peak_memory_bytes=7 * GIB)
    asked = replace(bf16, batch_size=32)
    assert MemoryModel(History(small, NATURAL), SPACE, CAP_BYTES).unlikely(asked) is not None
    assert MemoryModel(History([*small, large], NATURAL), SPACE, CAP_BYTES).unlikely(asked) is None
