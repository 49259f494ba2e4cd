"""Hostile scripts under every mode, as root and as an ordinary user: no change without a word, and no process left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from autotune.protocol.protection import Protection
from autotune.sandbox import landlock
from autotune.sandbox.layer_permission import is_permitted
from tests.sandbox.__main__ import is_held
from tests.sandbox.playground import Found
from tests.sandbox.playing import ROOT, USER, play, users
from tests.sandbox.situations import GROUPS, SITUATIONS, Situation
from tests.sandbox.situations.elsewhere import ELSEWHERE

MODES = tuple(mode.value for mode in Protection)
QUICK = [situation for situation in SITUATIONS if situation.is_quick]
SLOW = [situation for situation in SITUATIONS if not situation.is_quick]
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=[(mode, who) for mode in MODES for who in (ROOT, USER)], ids=str)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    mode, who = request.param
    if mode == Protection.LAYERS and not is_permitted(tmp_path_factory.mktemp("permitted")):
        pytest.skip("this system permits no layers")
    if mode == Protection.LANDLOCK and landlock.version() < 6:
        pytest.skip("this kernel has no Landlock, or one that withholds no signals")
    if who not in users():
        pytest.skip(f"this process cannot play {who}")
    return mode, who


@pytest.fixture(scope="module")
def quick(ground: tuple[str, str]) -> Iterator[Mapping[str, Found]]:
    yield {one.name: one for one in play(*ground, [situation.name for situation in QUICK])}


@pytest.fixture(scope="module")
def slow(ground: tuple[str, str]) -> Iterator[Mapping[str, Found]]:
    yield {one.name: one for one in play(*ground, [situation.name for situation in SLOW])}


def check(situation: Situation, ground: tuple[str, str], found: Mapping[str, Found]) -> None:
    mode, who = ground
    if mode not in situation.modes or (situation.needs_root and who != ROOT) or (situation in GROUPS and who == ROOT):
        assert situation.name not in found
        return
    one = found[situation.name]
    assert one.unnamed == ()
    assert one.num_left == 0
    assert is_held(one, mode), f"{one.outcome}: {one.said}"


@pytest.mark.parametrize("situation", QUICK, ids=lambda situation: situation.name)
def test_nothing_changes_without_a_word_and_nothing_is_left(
    situation: Situation, ground: tuple[str, str], quick: Mapping[str, Found]
) -> None:
    check(situation, ground, quick)


@pytest.mark.slow
@pytest.mark.parametrize("situation", SLOW, ids=lambda situation: situation.name)
def test_nothing_changes_without_a_word_and_nothing_is_left_in_rarer_situations(
    situation: Situation, ground: tuple[str, str], slow: Mapping[str, Found]
) -> None:
    check(situation, ground, slow)


def test_situations_have_names_of_their_own() -> None:
    assert len({situation.name for situation in SITUATIONS}) == len(SITUATIONS)


@pytest.mark.parametrize(("what", "test"), ELSEWHERE)
def test_a_test_named_for_a_situation_exists(what: str, test: str) -> None:
    path, _, name = test.partition("::")
    assert what
    assert f"def {name}(" in (REPOSITORY / path).read_text()
