"""`keep_freed_memory`: the C library keeps the host memory that a step frees, for the next step.

By default the GNU C library gives every freed large block back to the system. The next step asks for the blocks again,
and the system clears each page of 4 KiB at the page's first use. A convolution network on two cores of a virtual
machine asked for 147,000 pages a step; with the memory kept the network asked for none, and trained 2.4 times as fast.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Features, Group, Memory, OwnLine, PeakFactor, Setting, switched

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase

VARIABLES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": str(64 << 20)}
"""No block has pages of its own from the system, freed memory is never given back, and the heap grows by 64 MiB."""
PARAMETERS = ((-4, 0), (-1, -1), (-2, 64 << 20))
"""The same as calls of `mallopt`: M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD of malloc.h."""
LOOKED_AT_BYTES = 64 << 20
"""Size of the block that shows the rule in force. By default every block above 32 MiB gets separate pages, and changes
nothing in the rule."""
FAULT_S = 1e-6
"""Least cost of a page's first use, in seconds; in a virtual machine 4 to 7 microseconds were measured."""
LEAST_SHARE = 0.01
"""Smallest share of a step for first uses of pages, at `FAULT_S` each, to make a trial worthwhile."""


class _Source(Enum):
    """The source of a large block."""

    PAGES = "separate pages"
    HEAP = "the heap's end"
    FREED = "freed memory amid the heap"
    UNKNOWN = "unknown"


class _Usage(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _read() -> bool | None:
    """Whether freed memory is kept, by the source of a large block; None for other C libraries and allocators."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):  # the GNU C library has it since version 2.33
        return None
    library.mallinfo2.restype, library.malloc.restype = _Usage, ctypes.c_void_p
    found = _source_of_block(library, LOOKED_AT_BYTES)
    if found is _Source.FREED:
        # The system was asked for nothing, so no rule showed. A block larger than all freed memory needs the system.
        found = _source_of_block(library, LOOKED_AT_BYTES + library.mallinfo2().fordblks)
    return {_Source.PAGES: False, _Source.HEAP: True}.get(found)


def _source_of_block(library: Any, num_bytes: int) -> _Source:
    """The source of the C library's block of this size; the block is freed again, and no page of the block is used."""
    before = library.mallinfo2()
    block = library.malloc(ctypes.c_size_t(num_bytes))
    after = library.mallinfo2()
    library.free(ctypes.c_void_p(block))
    if after.hblkhd - before.hblkhd >= num_bytes:
        return _Source.PAGES
    if after.uordblks - before.uordblks < num_bytes:
        return _Source.UNKNOWN
    # By default the library gives so much room at the heap's end back at once; only under the setting does room remain.
    return _Source.HEAP if after.arena > before.arena or before.keepcost >= num_bytes else _Source.FREED


def _write(is_on: Any) -> None:
    if is_on:
        library = ctypes.CDLL(None)
        for parameter, value in PARAMETERS:
            library.mallopt(parameter, value)


def _environment(is_on: Any, _: Mapping[str, str]) -> Mapping[str, str]:
    return VARIABLES if is_on else {}


def _pointless(case: SearchCase) -> str:
    facts = case.facts
    if facts.keeps_freed_memory is None:
        return "the process has another C library than GNU's, or another allocator"
    if facts.keeps_freed_memory:
        return "the process keeps its memory already, and the C library has no way back"
    if "keep_freed_memory" in case.asked or facts.pages_per_step is None:
        return ""
    if facts.pages_per_step * FAULT_S < LEAST_SHARE * facts.step_s:
        return f"a step asks the system for {facts.pages_per_step:,.0f} pages of memory, which takes next to no time"
    return ""


SETTING = Setting(
    name="keep_freed_memory",
    group=Group.THREADS,
    default=False,
    takes_effect="`mallopt` before the script's first line, and the trial's environment for processes of its own",
    left_alone="a step asks the system for few pages of memory; no C library of GNU; another allocator; kept already",
    domain=(False, True),
    own=lambda facts: bool(facts.keeps_freed_memory),
    pointless=_pointless,
    is_foreign=lambda case: bool(_pointless(case)),
    memory=Memory.MORE,
    is_memory_of_host=True,
    peak_factor=PeakFactor(mean=0.03, deviation=0.05),
    features=Features(compute=switched("keep_freed_memory"), loader=switched("keep_freed_memory")),
    environment=_environment,
    not_live="the C library has no way back to its own rule",
    write=_write,
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="set " + " ".join(f"{name}={value}" for name, value in VARIABLES.items()) + " before Python starts",
)
