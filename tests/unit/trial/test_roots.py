"""Calls of modules as they are told while roots are looked for."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import CheckpointError, checkpoint

from autotune.settings import Precision
from autotune.trial.step.autocast import AutocastRegion
from autotune.trial.step.roots import Roots
from autotune.trial.torch.torch_names import compile_in_place, num_compiled_graphs

# torch 2.4's own checkpoint calls what torch 2.4 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.cpu.amp.autocast:FutureWarning")


class Checkpointed(torch.nn.Module):
    """Runs its part without gradients, as a checkpoint does before it runs it again."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.part(inputs)
        result: torch.Tensor = self.part(inputs)
        return result


@pytest.fixture
def calls() -> Iterator[list[bool]]:
    told: list[bool] = []
    roots = Roots()
    roots.on_any_call = told.append
    roots.install()
    yield told
    roots.stop()


def test_a_pass_without_gradients_within_the_models_own_is_none(calls: list[bool]) -> None:
    Checkpointed()(torch.ones(1, 2))
    assert calls == [True]


def test_every_call_of_a_validation_is_told(calls: list[bool]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with torch.no_grad():
        model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    with torch.inference_mode():
        model(torch.ones(1, 2))
    assert calls == [False, False, True, False, False]


class Recomputed(torch.nn.Module):
    """Checkpoints its parts: the backward pass calls them again, with gradients."""

    def __init__(self, *, is_reentrant: bool) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self._is_reentrant = is_reentrant

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for part in (self.first, self.second):
            inputs = checkpoint(part, inputs, use_reentrant=self._is_reentrant)
        return inputs


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_a_model_whose_parts_run_again_in_backward_is_one_model(is_reentrant: bool) -> None:
    roots, model = Roots(), Recomputed(is_reentrant=is_reentrant)
    roots.install()
    try:
        for _ in range(2):
            model(torch.ones(1, 2, requires_grad=True)).sum().backward()
    finally:
        roots.stop()
    assert roots.modules == (model,)


def test_no_autocast_region_opens_in_a_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that did would belong to the thread of that pass, and no later forward pass could open its own."""
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    roots, model = Roots(), torch.nn.Linear(2, 2)
    AutocastRegion("cpu", Precision.BF16).install(roots)
    roots.install()
    try:
        for _ in range(2):
            inputs = torch.ones(1, 2, requires_grad=True)
            output = checkpoint(model, inputs, use_reentrant=False)
            assert output.dtype == torch.bfloat16
            output.float().sum().backward()
            assert not torch.is_autocast_enabled("cpu")
    finally:
        roots.stop()


class TwoLayers(torch.nn.Module):
    """Calls its parts by `nn.Module.__call__`, which the search wraps."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.parts(inputs)
        return result


class HasCompiledPart(torch.nn.Module):
    """Runs uncompiled, with a part that the script has compiled, in a checkpoint if asked for."""

    def __init__(self, is_checkpointed: bool) -> None:
        super().__init__()
        self.part = torch.compile(TwoLayers(), backend="eager")
        self.is_checkpointed = is_checkpointed

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = (
            checkpoint(self.part, inputs, use_reentrant=False) if self.is_checkpointed else self.part(inputs)
        )
        return result


def compiled_in_place() -> torch.nn.Module:
    model = TwoLayers()
    model.compile(backend="eager")
    return model


class TwoLosses(torch.nn.Module):
    """Adds losses of torch, as many losses of a segmentation do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Softplus(), torch.nn.MSELoss()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.first(inputs).mean() + self.second(inputs, torch.zeros_like(inputs))
        return result


class FirstGains(torch.nn.Module):
    """Makes its layer in its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not len(self.layers):
            self.layers.append(torch.nn.Linear(inputs.shape[-1], 2))
        result: torch.Tensor = self.layers[0](inputs)
        return result


def roots_of(*calls: torch.nn.Module) -> set[torch.nn.Module]:
    """The roots found when these modules are called one after the other."""
    roots = Roots()
    roots.install()
    try:
        for module in calls:
            module(torch.ones(2, 2, requires_grad=True)).sum().backward()
    finally:
        roots.stop()
    return set(roots.modules)


def test_losses_and_transforms_made_of_modules_without_parameters_are_no_models() -> None:
    model, transform = (
        torch.nn.Linear(2, 2),
        torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2, affine=False)),
    )
    assert roots_of(transform, model, TwoLosses()) == {model}


def test_a_model_of_lazy_layers_alone_is_one_model() -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(2))
    assert roots_of(model, model) == {model}


def test_a_model_that_makes_its_layers_in_its_first_call_is_found_in_its_second() -> None:
    model = FirstGains()
    assert model in roots_of(model, model)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.compile(TwoLayers(), backend="eager"),
        compiled_in_place,
        lambda: HasCompiledPart(is_checkpointed=False),
        lambda: HasCompiledPart(is_checkpointed=True),
        lambda: torch.compile(TwoLosses(), backend="eager"),
    ],
    ids=["whole", "in-place", "part", "checkpointed-part", "losses"],
)
def test_a_model_that_the_script_compiles_is_not_compiled_anew_when_the_search_ends(
    make: Callable[[], torch.nn.Module],
) -> None:
    inputs = torch.ones(1, 2, requires_grad=True)
    try:
        make()(inputs).sum().backward()
    except CheckpointError:  # torch 2.4
        pytest.skip("this torch cannot run a compiled part in a checkpoint")
    torch.compiler.reset()
    model, roots = make(), Roots()
    roots.compiles = lambda: True
    roots.install()
    try:
        with torch.no_grad():
            model(inputs)
        for _ in range(2):
            model(inputs).sum().backward()
        during = num_compiled_graphs()
    finally:
        roots.stop()
    assert during, "the compiler has built nothing"
    model(inputs).sum().backward()
    with torch.no_grad():
        model(inputs)
    assert num_compiled_graphs() == during


def test_the_class_of_modules_is_not_touched_within_the_calls_of_a_script_that_compiles_nothing() -> None:
    """Each change of the class costs Python what it knows of all its subclasses."""
    seen = list[bool]()
    roots, model = Roots(), torch.nn.Linear(2, 2)
    model.register_forward_hook(lambda *_: seen.append(torch.nn.Module.__call__ is wrapped))
    roots.install()
    wrapped = torch.nn.Module.__call__
    try:
        model(torch.ones(1, 2))
        roots.compiles = lambda: True
        model(torch.ones(1, 2))
    finally:
        roots.stop()
    assert seen == [True, False]


class GivesAllOfItself(TwoLayers):
    """Stores all its attributes, as Lightning's LightningModule does; torch's own modules leave the slot out."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))


def act_before_calls(roots: Roots) -> None:
    roots.before_call.append(lambda: None)


@pytest.mark.parametrize(
    "prepare",
    [act_before_calls, lambda roots: roots.prepare.append(compile_in_place)],
    ids=["a call of ours", "a compiled call"],
)
def test_copies_of_a_root_run_themselves_and_its_file_is_a_plain_models(
    prepare: Callable[[Roots], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda call: lambda *args: call(*args))
    model, roots, file, inputs = GivesAllOfItself(), Roots(), io.BytesIO(), torch.ones(1, 2)
    prepare(roots)
    roots.install()
    expected = model(inputs)
    roots.stop()
    torch.save(model, file)
    twin = copy.deepcopy(model)
    assert b"autotune" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    assert torch.equal(twin(inputs), expected) and torch.equal(loaded(inputs), expected)
    assert not torch.equal(model(inputs), expected)


def test_a_model_that_the_script_drops_is_freed() -> None:
    """Of many models, such as the folds of a cross-validation, one lives at a time."""
    roots = Roots()
    roots.before_call.append(lambda: None)
    roots.install()
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2))
    roots.stop()
    assert roots.modules == (model,)
    dropped = weakref.ref(model)
    del model
    gc.collect()
    assert dropped() is None and roots.modules == ()
