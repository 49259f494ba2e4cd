"""The order of a recording: groups of cells that share a process and a build, and the anchors between them."""

from __future__ import annotations

import pytest

from autotune.lab.grid_order import CELLS_PER_ANCHOR, CellKind, GridOrder, Turn, grouped


def order(kinds, *, repeats=2, seed=0, fastest=lambda cells: None):
    return list(GridOrder(kinds, repeats=repeats, seed=seed, fastest=fastest).turns())


def own(turns, number):
    return [turn.cell for turn in turns if turn.anchor is None and turn.round == number]


def num_runs(values):
    """Number of runs of equal neighbours."""
    return sum(n == 0 or values[n] != values[n - 1] for n in range(len(values)))


KINDS = tuple(CellKind(n % 3, build) for n in range(20) for build in (None, "default", "graphs"))


def test_each_process_and_each_build_serves_its_cells_one_after_the_other():
    turns = order(KINDS)
    for number in range(2):
        cells = own(turns, number)
        assert sorted(cells) == list(range(60))
        assert num_runs([KINDS[cell].process for cell in cells]) == 3
        assert num_runs([KINDS[cell] for cell in cells]) == 9


def test_rounds_differ_in_their_order_and_go_on_in_the_process_of_the_round_before():
    turns = order(KINDS)
    first, second = own(turns, 0), own(turns, 1)
    assert first != second
    assert KINDS[first[0]].process == KINDS[0].process
    assert KINDS[second[0]].process == KINDS[first[-1]].process


def test_the_order_is_the_seeds_and_the_same_in_every_resume():
    assert order(KINDS, seed=1) == order(KINDS, seed=1) != order(KINDS, seed=2)


@pytest.mark.parametrize("num_cells", [8, 30])
def test_cells_of_one_kind_are_in_random_order_with_anchors_after_every_dozen(num_cells):
    turns = order((CellKind(),) * num_cells, repeats=1)
    at = [position for position, turn in enumerate(turns) if turn.anchor is not None]
    assert at == [*range(0, num_cells, CELLS_PER_ANCHOR + 1), len(turns) - 1][: len(at)]
    assert own(turns, 0) != sorted(own(turns, 0))


def test_the_anchor_within_a_large_group_of_another_process_is_its_own_fastest_cell():
    kinds = tuple(CellKind(n >= 10) for n in range(50))
    turns = order(kinds, repeats=1, fastest=lambda cells: 12 if 12 in cells else None)
    anchors = [turn.cell for turn in turns if turn.anchor is not None]
    assert anchors == [0, 12, 12, 12, 0]


def test_a_large_group_without_a_measured_cell_has_no_anchor():
    kinds = tuple(CellKind(n >= 10) for n in range(50))
    assert [turn.cell for turn in order(kinds, repeats=1) if turn.anchor is not None] == [0, 0]


def test_no_anchor_parts_a_small_group_of_another_process():
    kinds = (CellKind(0),) * 20 + tuple(CellKind(1 + n // 5) for n in range(20))
    turns = order(kinds, repeats=1, fastest=lambda cells: 3)
    processes = [kinds[turn.cell].process for turn in turns if kinds[turn.cell].process]
    assert num_runs(processes) == 4
    assert {turn.cell for turn in turns if turn.anchor is not None} == {0, 3}


def test_the_second_anchor_is_asked_for_among_cells_of_the_baselines_process():
    asked = []

    def fastest(cells):
        asked.append(tuple(cells))
        return 2

    turns = order(tuple(CellKind(n % 2) for n in range(8)), repeats=2, fastest=fastest)
    assert set(asked) == {(0, 2, 4, 6)}
    assert turns[0] == Turn(0, 0, 0) and turns[-1].cell == 2


def test_groups_keep_the_order_of_first_occurrence():
    assert grouped([5, 2, 3, 4, 1], lambda cell: cell % 2) == [[5, 3, 1], [2, 4]]
