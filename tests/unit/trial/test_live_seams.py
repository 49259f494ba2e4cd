"""What a process needs to measure one setting after another: seams that come off, loaders and models that change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.trial.loader.loaders import override_arguments, rearrange
from autotune.trial.step.memory_format import align_states, convert_weights
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import recorded, unwrap, wrap


def one_more(original: Any) -> Any:
    return lambda: original() + 1


def owner() -> SimpleNamespace:
    return SimpleNamespace(count=lambda: 0)


def test_seams_come_off_in_reverse_order_and_leave_the_originals() -> None:
    place = owner()
    original = place.count
    wrap(place, "count", one_more)
    with recorded() as seams:
        wrap(place, "count", one_more)
        wrap(place, "count", one_more)
    assert place.count() == 3
    assert not unwrap(seams)
    assert place.count() == 1 and place.count is not original


def test_a_seam_under_a_wrapper_of_somebody_else_is_told() -> None:
    place = owner()
    with recorded() as seams:
        wrap(place, "count", one_more)
    place.count = one_more(place.count)
    assert unwrap(seams) == ["SimpleNamespace.count"]
    assert place.count() == 2


def test_a_seam_that_only_notes_may_stay_under_a_wrapper_of_somebody_else() -> None:
    place = owner()
    with recorded() as seams:
        wrap(place, "count", lambda original: lambda: original(), only_notes=True)
    place.count = one_more(place.count)
    assert not unwrap(seams)
    assert place.count() == 1


def loader_of(arguments: dict[str, Any]) -> Any:
    loader = DataLoader(**arguments)
    loader.batch_sampler  # noqa: B018 - torch builds it at once
    return loader


@pytest.mark.parametrize(
    ("own", "changes"),
    [
        ({"batch_size": 4, "shuffle": True}, {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}),
        ({"batch_size": 4, "num_workers": 2, "prefetch_factor": 5, "timeout": 7}, {"num_workers": 0}),
        ({"batch_size": 8, "drop_last": True}, {"batch_size": 2}),
        ({"batch_size": 8, "num_workers": 1, "multiprocessing_context": "fork"}, {"num_workers": 2}),
    ],
)
def test_a_built_loader_is_rearranged_to_what_the_arguments_would_build(own: Any, changes: Any) -> None:
    data = {"dataset": TensorDataset(torch.arange(20)), **own}
    loader, wanted = loader_of(data), loader_of(override_arguments(data, changes))
    rearrange(loader, override_arguments(data, changes))
    names = ("num_workers", "pin_memory", "persistent_workers", "timeout", "batch_size", "drop_last")
    assert {name: getattr(loader, name) for name in names} == {name: getattr(wanted, name) for name in names}
    assert loader.num_workers == 0 or loader.prefetch_factor == wanted.prefetch_factor
    assert len(loader) == len(wanted) and len(next(iter(loader))[0]) == len(next(iter(wanted))[0])
    rearrange(loader, data)
    assert {name: getattr(loader, name) for name in names} == {name: getattr(loader_of(data), name) for name in names}


def test_the_state_of_an_optimizer_follows_the_layout_of_its_weights() -> None:
    layer = torch.nn.Conv2d(4, 4, 3)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.randn(1, 4, 8, 8)).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    before = optimizer.state[layer.weight]["exp_avg"].clone()
    for layout in (torch.channels_last, torch.contiguous_format):
        convert_weights(layer, layout)
        align_states([optimizer])
        moment = optimizer.state[layer.weight]["exp_avg"]
        assert moment.is_contiguous(memory_format=layout) and torch.equal(moment, before)
        assert layer.weight.grad is None or layer.weight.grad.is_contiguous(memory_format=layout)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_each_kind_of_graph_is_compiled_once_and_for_its_own_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()  # of breaks in the graphs of other tests
    shapes: list[tuple[Any, ...]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        shapes.append(tuple(type(size) for value in inputs for size in value.shape))
        return graph.forward

    compiler = torch.compile
    monkeypatch.setattr(torch_names, "_can_tell_kinds", lambda: True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: compiler(function, backend=backend))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    for size in (2, 3, 5, 7, 9, 11, 13, 15, 17, 19, 2, 3, 5, 19):
        torch_names.compile_in_place(model, kind=size)
        model(torch.randn(size, 4))
        torch_names.forget_compiled(model)
        torch_names.set_outer_call(model, None)
    assert len(shapes) == 10
    assert {kind for kinds in shapes for kind in kinds} == {int}
    assert not torch_names.is_compiled(model)
