"""Kernels of attention: switched, seen in torch's operations, and switched back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from autotune.settings.sdpa_backend import SETTING, SdpaBackend
from autotune.space.derive import derive_space
from tests.unit.facts import gpu_machine, script_facts, search_spec


def write(backend: SdpaBackend) -> None:
    assert SETTING.write is not None
    SETTING.write(backend)


def read() -> object:
    assert SETTING.read is not None
    return SETTING.read()


@pytest.fixture(autouse=True)
def all_kernels() -> Iterator[None]:
    yield
    write(SdpaBackend.DEFAULT)


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(operation.overloadpacket.__name__)
        return operation(*args, **(kwargs or {}))


def operations_of_attention() -> set[str]:
    x = torch.randn(1, 2, 16, 8)
    with Operations() as seen:
        torch.nn.functional.scaled_dot_product_attention(x, x, x)
    return seen.names


@pytest.mark.parametrize("backend", SdpaBackend)
def test_a_value_is_read_back_and_undone(backend: SdpaBackend) -> None:
    write(backend)
    assert read() == backend.value
    write(SdpaBackend.DEFAULT)
    assert read() == "default"


def test_plain_kernels_take_the_place_of_fused_kernels_and_give_way_again() -> None:
    before = operations_of_attention()
    write(SdpaBackend.MATH)
    assert any("flash" in name for name in before) and not any("flash" in name for name in operations_of_attention())
    write(SdpaBackend.FLASH)
    assert operations_of_attention() == before


def test_a_choice_of_the_scripts_own_is_no_value() -> None:
    torch.backends.cuda.enable_flash_sdp(False)
    assert read() is None


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ((), "no call of scaled_dot_product_attention with fused kernels was seen"),
        (("attention", "own_attention"), "the script chooses its kernels by itself"),
        (("attention",), None),
    ],
)
def test_a_search_tries_kernels_where_attention_was_seen(notes: tuple[str, ...], reason: str | None) -> None:
    space = derive_space(script_facts(device="cuda", notes=notes), gpu_machine(), search_spec())
    assert dict(space.refused).get("sdpa_backend") == reason
    assert len(space.allowed["sdpa_backend"]) == (1 if reason else len(SdpaBackend))


def test_kernels_that_an_older_device_lacks_are_dropped_by_name() -> None:
    facts = script_facts(device="cuda", notes=("attention",))
    space = derive_space(facts, gpu_machine(capability=(7, 5)), search_spec())
    assert space.allowed["sdpa_backend"] == ("default", "efficient", "math")
    assert dict(space.refused)["sdpa_backend=flash"] == "GPU has compute capability 7.5"
