"""The cells of a grid: what the user named, once each, legal, the baseline first."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autotune.errors import SearchSpaceError
from autotune.lab.grid import Grid
from autotune.lab.grid_space import MAX_CELLS, enumerate_cells, grid_space, recorded_space, space_over
from autotune.settings import Settings
from autotune.space.derive import derive_space
from tests.unit.facts import cpu_machine, gpu_machine, loader_facts, script_facts, search_spec
from tests.unit.grids import SPACE, header


def cells_of(machine=None, facts=None, **spec):
    asked = search_spec(**spec)
    space = grid_space(derive_space(facts or script_facts(), machine or cpu_machine(), asked), asked)
    return space, enumerate_cells(space)


def test_what_nobody_named_stays_the_scripts_own():
    space, found = cells_of(ranges=(("num_workers", "0,1,2"),))
    assert space.searched == ("num_workers",)
    assert [cell.num_workers for cell in found.cells] == [0, 1, 2]
    assert {replace(cell, num_workers=0) for cell in found.cells} == {found.cells[0]}


def test_without_a_wish_the_grid_is_the_baseline_alone():
    space, found = cells_of()
    assert found.cells == (space.script_settings.canonical(device_is_cpu=True),)


def test_the_baseline_is_the_first_cell_even_where_the_values_leave_it_out():
    _, found = cells_of(ranges=(("num_workers", "1,2"),))
    assert [cell.num_workers for cell in found.cells] == [0, 1, 2]


def test_inert_settings_give_one_cell():
    _, found = cells_of(ranges=(("num_workers", "0,1"), ("prefetch_factor", "2,4,8")))
    assert len(found.cells) == 1 + 3
    assert found.dropped == ()


def test_batch_size_and_accumulation_name_the_split():
    for name, text in (("batch_size", "16,64"), ("grad_accum_steps", "1,4")):
        _, found = cells_of(ranges=((name, text),))
        assert {(cell.batch_size, cell.grad_accum_steps) for cell in found.cells} == {(64, 1), (16, 4)}


def test_a_free_batch_is_named_by_its_range():
    space, found = cells_of(effective_batch="64..256")
    assert space.searched == ("batch_size",)
    assert {(cell.batch_size, cell.grad_accum_steps) for cell in found.cells} == {(64, 1), (128, 1), (256, 1)}


def test_knobs_are_named_by_their_names():
    facts = script_facts(knobs=(("storage", "jpeg"),))
    _, found = cells_of(facts=facts, ranges=(("storage", "npy,raw"),))
    assert [dict(cell.knobs)["storage"] for cell in found.cells] == ["jpeg", "npy", "raw"]


def test_what_is_not_legal_is_dropped_with_its_reason():
    facts = script_facts(loader=loader_facts(batch_bytes=64 << 20))
    machine = cpu_machine(cpus=8.0, shm_free_bytes=600 << 20)
    _, found = cells_of(machine, facts, ranges=(("num_workers", "0,1,4"),))
    assert [cell.num_workers for cell in found.cells] == [0, 1]
    ((settings, reason),) = found.dropped
    assert settings.num_workers == 4 and "/dev/shm" in reason


def test_values_that_the_machine_refuses_are_a_usage_error():
    with pytest.raises(SearchSpaceError, match="tf32"):
        cells_of(ranges=(("precision", "fp32,tf32"),))


def test_a_grid_that_nobody_can_measure_is_refused_with_its_factors():
    ranges = (("num_workers", "0..64"), ("precision", "fp32,bf16,tf32,fp16"), ("prefetch_factor", "1,2,4,8"))
    switches = tuple(
        (name, "false,true") for name in ("pin_memory", "channels_last", "cudnn_benchmark", "non_blocking", "compile")
    )
    with pytest.raises(SearchSpaceError, match=f"more than {MAX_CELLS:,}") as caught:
        cells_of(gpu_machine(), script_facts(device="cuda"), ranges=(*ranges, *switches))
    assert "4 precision" in str(caught.value)


def test_every_cell_is_legal_and_nothing_else_is():
    space, found = cells_of(ranges=(("num_workers", "0,1,2"), ("prefetch_factor", "2,8"), ("batch_size", "32,64")))
    assert all(space.why_not(cell) is None for cell in found.cells)
    assert len(set(found.cells)) == len(found.cells) == 2 * 5
    assert space.why_not(replace(found.cells[0], num_workers=4)) is not None


def test_a_recording_gives_back_its_space():
    plain = json.loads(json.dumps(header().space))
    assert recorded_space(Grid(header(space=plain), ())) == SPACE


def test_a_space_that_cannot_be_read_is_refused():
    with pytest.raises(ValueError):
        recorded_space(Grid(header(space={"natural": 3}), ()))


def test_a_space_over_values_holds_them_and_the_natural_ones():
    script_settings = Settings(batch_size=32)
    space = space_over(script_settings, {"num_workers": (2, 4), "batch_size": (64,), "storage": ("jpeg", "npy")})
    assert dict(space.allowed)["num_workers"] == (0, 2, 4)
    assert dict(space.allowed)["batch_size"] == (32, 64)
    assert set(space.searched) == {"num_workers", "batch_size", "knobs.storage"}
    cells = enumerate_cells(space).cells
    assert cells[0] == script_settings.canonical(device_is_cpu=False) or dict(cells[0].knobs) == {"storage": ""}
    assert all(space.settings(space.params(cell)) == cell for cell in cells[1:])


@pytest.mark.parametrize(
    "values", [{"num_workers": (-1,)}, {"precision": ("fp12",)}, {"pin_memory": ("yes",)}, {"batch_size": (8,)}]
)
def test_a_space_over_impossible_values_is_refused(values):
    with pytest.raises(SearchSpaceError):
        space_over(Settings(), values)
