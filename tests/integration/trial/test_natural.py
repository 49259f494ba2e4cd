"""What a script sets itself is read the same way in its probe and in its trials, and can be tried the other way."""

from __future__ import annotations

import pytest

from autotune.space.script_settings import script_settings_of
from tests.integration.trial.ground import Ground, space_of

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Flatten(), torch.nn.Linear(288, 1))
    OWN
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    images = TensorDataset(torch.randn(2048, 4, 8, 8), torch.randn(2048, 1))
    said = set()
    for epoch in range(999):
        for inputs, targets in DataLoader(images, batch_size=16):
            inputs = inputs.to(memory_format=torch.channels_last)
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            lies = model[0].weight.is_contiguous(memory_format=torch.channels_last)
            if lies not in said:
                said.add(lies)
                print(f"channels_last={lies}", flush=True)
"""
OWN_CHANNELS_LAST = SCRIPT.replace("OWN", "model = model.to(memory_format=torch.channels_last)")


def test_a_script_that_is_channels_last_by_itself_is_measured_so(ground: Ground) -> None:
    script = ground.script(OWN_CHANNELS_LAST)
    facts = ground.probe(script)
    assert script_settings_of(facts).channels_last
    run = ground.trial(script, facts)
    assert run.outcome == "ok", run.verdict
    assert run.rank.observed["channels_last"] is True
    assert "channels_last=False" not in run.output


def test_a_script_that_is_channels_last_by_itself_is_tried_without_it(ground: Ground) -> None:
    script = ground.script(OWN_CHANNELS_LAST)
    facts = ground.probe(script)
    assert set(space_of(facts).allowed["channels_last"]) == {False, True}
    run = ground.trial(script, facts, channels_last=False)
    assert run.outcome == "ok", run.verdict
    assert run.rank.observed["channels_last"] is False
    assert "channels_last=True" not in run.output


@pytest.mark.parametrize(
    "own", ["torch.use_deterministic_algorithms(True)", "torch.backends.cudnn.deterministic = True"]
)
def test_a_wish_for_deterministic_kernels_is_noted(ground: Ground, own: str) -> None:
    assert "deterministic" in ground.probe(ground.script(SCRIPT.replace("OWN", own))).notes


def test_tf32_is_read_whichever_way_the_script_allows_it() -> None:
    import torch

    from autotune.trial.torch import torch_names

    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert torch_names.allows_tf32()
        torch.backends.cuda.matmul.allow_tf32 = False
        assert not torch_names.allows_tf32()
        if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
            torch.backends.cuda.matmul.fp32_precision = "tf32"  # torch's older question raises from here on
            assert torch_names.allows_tf32()
            torch.backends.cuda.matmul.fp32_precision = "ieee"
            assert not torch_names.allows_tf32()
    finally:
        torch.set_float32_matmul_precision(before)


def test_an_accuracy_of_products_is_put_in_force_over_the_scripts_own(ground: Ground) -> None:
    script = ground.script(SCRIPT.replace("OWN", 'torch.set_float32_matmul_precision("high")'))
    facts = ground.probe(script)
    assert facts.own_matmul_precision == "high"
    own = ground.trial(script, facts)
    assert own.outcome == "ok" and own.rank.observed["matmul_precision"] == "high"
    run = ground.trial(script, facts, matmul_precision="medium")
    assert run.outcome == "ok", run.verdict
    assert run.rank.observed["matmul_precision"] == "medium"
