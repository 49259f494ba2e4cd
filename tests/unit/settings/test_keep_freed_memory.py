"""Host memory kept by the C library: in force by call and by variables, read back, tried where steps ask for much."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.protocol.environment import BY_CALL
from autotune.settings import keep_freed_memory
from autotune.settings.keep_freed_memory import SETTING, VARIABLES
from autotune.space.derive import derive_space
from tests.unit.facts import cpu_machine, script_facts, search_spec

PAGES = """
import resource
from autotune.settings.keep_freed_memory import SETTING
if {is_written}:
    SETTING.write(True)
block = bytes(8 << 20)  # the first block of its size: the heap grows
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    block = None
    block = bytearray(40 << 20)
print(SETTING.read(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def in_new_process(*, is_written: bool = False, **variables: str) -> tuple[str, int]:
    """What is in force there, and the pages that ten blocks of 10,240 pages ask the system for."""
    command = [sys.executable, "-c", PAGES.format(is_written=is_written)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **variables})
    in_force, pages = done.stdout.split()
    return in_force, int(pages)


def test_the_c_library_gives_large_blocks_back_by_its_own_rule() -> None:
    in_force, pages = in_new_process()
    assert in_force == "False" and pages > 90_000


def test_a_call_keeps_freed_memory() -> None:
    in_force, pages = in_new_process(is_written=True)
    assert in_force == "True" and pages < 30_000


def test_variables_keep_freed_memory_from_the_start_on() -> None:
    assert SETTING.environment is not None
    assert SETTING.environment(False, {}) == {} and SETTING.environment(True, {}) == VARIABLES
    in_force, pages = in_new_process(**VARIABLES)
    assert in_force == "True" and pages < 30_000


ADAPTS = """
import resource
from autotune.settings.keep_freed_memory import SETTING
from autotune.trial.apply.environment_seams import adapt_to_large_blocks
if {adapts}:
    adapt_to_large_blocks()
for step in range(12):
    if step == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(12 << 20) for _ in range(3)]
    blocks = None
print(SETTING.read(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize("adapts", [False, True])
def test_after_one_large_block_the_c_library_gives_less_back_by_its_own_rule(adapts: bool) -> None:
    """Ten steps with three blocks of 3,072 pages each; the setting stays off in the reading."""
    done = subprocess.run(
        [sys.executable, "-c", ADAPTS.format(adapts=adapts)], capture_output=True, text=True, check=True
    )
    in_force, pages = done.stdout.split()
    assert in_force == "False"
    assert (int(pages) < 1000) is adapts


HOLES = """
from autotune.settings.keep_freed_memory import SETTING, LOOKED_AT_BYTES
if {is_written}:
    SETTING.write(True)
blocks = [bytes(100_000) for _ in range(3000)]  # below the size that gets pages of its own
last = bytes(100_000)
blocks.clear()
print([SETTING.read() for _ in range(3)])
"""


@pytest.mark.parametrize("is_written", [False, True])
def test_much_freed_memory_amid_the_heap_hides_no_rule(is_written: bool) -> None:
    command = [sys.executable, "-c", HOLES.format(is_written=is_written)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([is_written] * 3)


def test_trials_that_differ_in_it_share_a_fork_server_since_a_call_does_the_same() -> None:
    assert set(VARIABLES) < set(BY_CALL)


class OtherLibrary:
    """A C library without the question, or an allocator of its own behind `malloc`."""

    def __init__(self, *, has_question: bool) -> None:
        self.malloc = self.free = lambda *_: None
        if has_question:
            self.mallinfo2 = lambda: SimpleNamespace(hblkhd=0, uordblks=0, arena=0, keepcost=0, fordblks=0)
            for function in (self.mallinfo2, self.malloc):
                function.restype = None  # type: ignore[attr-defined]


@pytest.mark.parametrize("has_question", [False, True])
def test_another_library_or_allocator_tells_nothing(monkeypatch: pytest.MonkeyPatch, has_question: bool) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: OtherLibrary(has_question=has_question))
    assert keep_freed_memory.SETTING.read is not None and keep_freed_memory.SETTING.read() is None


@pytest.mark.parametrize(
    ("changes", "is_tried"),
    [
        ({"keeps_freed_memory": False, "pages_per_step": 20_000.0, "step_s": 0.5}, True),
        ({"keeps_freed_memory": False, "pages_per_step": 2_000.0, "step_s": 0.5}, False),
        ({"keeps_freed_memory": True, "pages_per_step": 20_000.0, "step_s": 0.5}, False),
        ({"keeps_freed_memory": None, "pages_per_step": 20_000.0, "step_s": 0.5}, False),
    ],
)
def test_it_is_tried_where_steps_ask_the_system_for_many_pages(changes: dict[str, Any], is_tried: bool) -> None:
    space = derive_space(script_facts(**changes), cpu_machine(), search_spec())
    assert (len(space.allowed["keep_freed_memory"]) == 2) is is_tried
    assert "keep_freed_memory" not in space.refused


def test_who_asks_for_it_gets_it_where_it_is_possible() -> None:
    facts = script_facts(keeps_freed_memory=False, pages_per_step=0.0)
    space = derive_space(facts, cpu_machine(), search_spec(ranges=(("keep_freed_memory", "false,true"),)))
    assert space.allowed["keep_freed_memory"] == (False, True)
