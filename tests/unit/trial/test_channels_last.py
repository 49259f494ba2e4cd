"""The memory format is put on models of any shape by nothing of their own, and read back from what convolves."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from autotune.settings import Settings
from autotune.settings.optimizer_form import OptimizerForm
from autotune.trial.apply import environment_seams
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.apply.observed import model_settings
from autotune.trial.step.roots import Roots
from autotune.trial.torch.patching import recorded, unwrap
from tests.jobs import changed
from tests.unit.facts import script_facts
from tests.unit.runner.samples import job

Sample = namedtuple("Sample", "image label")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        result: torch.Tensor = self.conv(x).mean()
        return result


class Task(torch.nn.Module):
    """A training task with a `to` of its own, which tries its arguments on an empty tensor first."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Net()

    def to(self, *args: Any, **kwargs: Any) -> Any:
        torch.empty(0).to(*args, **kwargs)
        return super().to(*args, **kwargs)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(x) - target.mean()
        return result


class Video(torch.nn.Module):
    """Has weights of five dimensions beside those of four."""

    def __init__(self) -> None:
        super().__init__()
        self.frames, self.images = torch.nn.Conv3d(3, 3, 3), Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.images(self.frames(x)[:, :, 0])
        return result


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Net()

    def forward(self, batch: Any, **others: Any) -> torch.Tensor:
        result: torch.Tensor = self.model(batch["samples"][0].image)
        return result


class Positioned(torch.nn.Module):
    """Replaces a four-dimensional weight that no convolution uses at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.bias = Net(), torch.nn.Parameter(torch.zeros(1, 2, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.bias.data = torch.zeros(1, 2, 3, 3)
        result: torch.Tensor = self.model(x) + self.bias.mean()
        return result


IMAGES = torch.randn(2, 3, 8, 8)
SHAPES = {
    "a plain model": (Net, (IMAGES,)),
    "a task with its own to": (Task, (IMAGES, torch.ones(2))),
    "a wrapper for several devices": (lambda: torch.nn.DataParallel(Net()), (IMAGES,)),
    "a model that is compiled": (lambda: torch.compile(Net(), backend="eager"), (IMAGES,)),
    "five-dimensional weights": (Video, (torch.randn(2, 3, 4, 8, 8),)),
    "images in a nested batch": (Nested, ({"samples": [Sample(IMAGES, torch.ones(2))], "n": 2},)),
    "a weight that is no convolution's": (Positioned, (IMAGES,)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_weights_and_images_are_converted_in(shape: str) -> None:
    torch.compiler.reset()
    make, inputs = SHAPES[shape]
    root: torch.nn.Module = make()
    network = next(part for part in root.modules() if isinstance(part, Net))
    assert model_settings([root], None)["channels_last"] is False
    roots = Roots()
    environment_seams.apply_kernels(Settings(channels_last=True), Settings(), roots)
    roots.install()
    try:
        root(*inputs)
    finally:
        roots.stop()
    assert network.conv.weight.is_contiguous(memory_format=torch.channels_last)
    if shape != "five-dimensional weights":  # Its images come from a layer of its own.
        assert network.seen[-1].is_contiguous(memory_format=torch.channels_last)
    assert model_settings([root], None)["channels_last"] is True


def test_the_weights_stay_the_optimizers_and_train_on() -> None:
    task = Task()
    optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
    before = task.model.conv.weight.detach().clone()
    roots = Roots()
    environment_seams.apply_kernels(Settings(channels_last=True), Settings(), roots)
    roots.install()
    try:
        task(IMAGES, torch.ones(2)).backward()
    finally:
        roots.stop()
    optimizer.step()
    assert not torch.equal(task.model.conv.weight, before)


def test_a_batch_without_images_is_handed_on_as_the_same_object() -> None:
    class Detector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = Net(), []

        def forward(self, images: list[torch.Tensor], targets: list[dict[str, torch.Tensor]]) -> torch.Tensor:
            self.seen += [images, targets]
            result: torch.Tensor = self.model(torch.stack(images))
            return result

    model, roots = Detector(), Roots()
    images, targets = [torch.randn(3, 8, 8)], [{"boxes": torch.ones(1, 4)}]
    environment_seams.apply_kernels(Settings(channels_last=True), Settings(), roots)
    roots.install()
    try:
        model(images, targets)
    finally:
        roots.stop()
    assert model.seen[0] is images and model.seen[1] is targets


def test_a_format_that_the_script_undoes_is_not_in_force() -> None:
    model, roots = Net(), Roots()
    environment_seams.apply_kernels(Settings(channels_last=True), Settings(), roots)
    roots.install()
    try:
        model(IMAGES)
    finally:
        roots.stop()
    model.conv.weight.data = model.conv.weight.data.contiguous()
    assert model_settings([model], None)["channels_last"] is False


def test_weights_of_one_pixel_or_one_channel_tell_nothing() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.Conv2d(4, 4, 3, groups=4))
    assert "channels_last" not in model_settings([model], None)


@contextmanager
def in_force(settings: Settings, script_settings: Settings) -> Iterator[None]:
    with recorded() as seams:
        applied = AppliedSettings(
            changed(job(), settings=settings, script_settings=script_settings, facts=script_facts())
        )
        applied.install()
    try:
        yield
    finally:
        applied.roots.stop()
        assert not unwrap(seams)


@pytest.mark.parametrize("form", ["default", "fused"])
@pytest.mark.parametrize("loads_late", [False, True], ids=["loaded before the model's first call", "loaded after"])
def test_an_optimizer_with_a_loaded_state_steps_as_without_the_format(loads_late: bool, form: str) -> None:
    def resumed() -> torch.Tensor:
        """The weights after one step from a stored state."""
        torch.manual_seed(0)
        layer = torch.nn.Conv2d(3, 4, 3)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=form == "fused" or None)
        stored = optimizer.state_dict()
        moments = {name: torch.randn(4, 3, 3, 3).abs() for name in ("exp_avg", "exp_avg_sq")}
        stored["state"] = {0: {"step": torch.tensor(5.0), **moments}}
        if not loads_late:
            optimizer.load_state_dict(stored)
        loss = layer(IMAGES).sum()
        if loads_late:
            optimizer.load_state_dict(stored)
        loss.backward()
        optimizer.step()
        return layer.weight.detach().contiguous()

    script_settings = Settings(batch_size=8, optimizer_form=OptimizerForm(form))
    asked = Settings(batch_size=8, channels_last=True, optimizer_form=OptimizerForm.FUSED)
    expected = resumed()
    with in_force(asked, script_settings):
        found = resumed()
    assert torch.allclose(found, expected, atol=1e-5)
