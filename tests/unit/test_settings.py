from __future__ import annotations

import pytest

from autotune.errors import SearchSpaceError
from autotune.settings import BOOLEAN_FIELDS, GROUP_OF_FIELD, Precision, Settings


def test_settings_survive_plain_values():
    settings = Settings(num_workers=3, batch_size=16, precision=Precision.BF16, knobs=(("storage", "lmdb"),))
    assert settings == Settings.from_dict(settings.to_dict())


def test_every_field_but_the_knobs_has_a_group():
    assert set(Settings().to_dict()) - {"knobs"} == set(GROUP_OF_FIELD)


def test_boolean_fields_are_found():
    assert "pin_memory" in BOOLEAN_FIELDS
    assert "num_workers" not in BOOLEAN_FIELDS


@pytest.mark.parametrize(
    "values",
    [
        {"num_workers": -1},
        {"num_workers": True},
        {"num_workers": 1.0},
        {"prefetch_factor": 0},
        {"batch_size": 0},
        {"memory_fraction": 0.0},
        {"memory_fraction": 1.5},
        {"precision": "fp8"},
        {"pin_memory": "yes"},
        {"learning_rate": 0.1},
        {"knobs": [1]},
        {"knobs": {"num_workers": "2"}},
    ],
)
def test_impossible_values_are_refused(values):
    with pytest.raises(SearchSpaceError):
        Settings.from_dict(values)


def test_loader_settings_without_workers_are_inert():
    one = Settings(num_workers=0, prefetch_factor=8, persistent_workers=True)
    assert one.canonical(device_is_cpu=False) == Settings().canonical(device_is_cpu=False)


def test_a_copy_on_a_stream_of_its_own_waits_for_nothing_anyway():
    one = Settings(stream_prefetch=True, non_blocking=True)
    assert one.canonical(device_is_cpu=False) == Settings(stream_prefetch=True)
    assert Settings(non_blocking=True).canonical(device_is_cpu=False).non_blocking


def test_device_settings_are_inert_on_a_cpu_alone():
    one = Settings(pin_memory=True, memory_fraction=0.5, cudnn_benchmark=True)
    assert one.canonical(device_is_cpu=True) == Settings()
    assert one.canonical(device_is_cpu=False) == one


def test_effective_batch_counts_accumulation_and_devices():
    assert Settings(batch_size=8, grad_accum_steps=4).effective_batch(2) == 64
    assert Settings().effective_batch(2) is None


def test_differences_name_fields_and_knobs():
    ours = Settings(num_workers=2, knobs=(("storage", "lmdb"),))
    assert ours.differences(Settings()) == {"num_workers": (2, 0), "knobs.storage": ("lmdb", None)}
