"""A script's own autocast and GradScaler, as the usual guides teach both, run in another format."""

from __future__ import annotations

import pytest

from autotune.space.script_settings import script_settings_of
from autotune.verdict.format_parity import TOLERANCES
from tests.integration.trial.ground import Ground

SCRIPT = """
    import json
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", enabled=ENABLED)
    region = torch.autocast("cpu", dtype=torch.DTYPE)
    examples = TensorDataset(torch.randn(2048, 16), torch.randn(2048, 4))
    norms, scales, formats = [], set(), set()
    model[0].register_forward_hook(lambda module, args, output: formats.add(str(output.dtype)))
    for epoch in range(EPOCHS):
        for inputs, targets in DataLoader(examples, batch_size=32):
            optimizer.zero_grad()
            with region:
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)))
            scaler.step(optimizer)
            scaler.update()
            scales.add(scaler.get_scale())
    print(json.dumps({"norms": norms[:20], "scales": sorted(scales), "formats": sorted(formats), "loss": float(loss)}))
"""


def script(dtype: str, *, is_scaled: bool, epochs: int = 999) -> str:
    text = SCRIPT.replace("DTYPE", dtype).replace("ENABLED", str(is_scaled))
    return text.replace("EPOCHS", str(epochs))


def test_a_fp16_script_trains_in_bf16_with_its_scaler_standing_aside(ground: Ground) -> None:
    path = ground.script(script("float16", is_scaled=True, epochs=1))
    facts = ground.probe(ground.script(script("float16", is_scaled=True)))
    assert (facts.own_autocast, facts.own_grad_scaler, facts.precision) == ("float16", True, "fp16")
    own, changed = ground.train(path, facts).said, ground.train(path, facts, precision="bf16").said
    assert (own["formats"], changed["formats"]) == (["torch.float16"], ["torch.bfloat16"])
    assert changed["scales"] == [1.0] and own["scales"] != [1.0]
    assert changed["norms"] == pytest.approx(own["norms"], rel=0.05)
    assert changed["loss"] == pytest.approx(own["loss"], rel=0.05)


def test_a_trial_of_the_other_format_is_in_force_and_held_to_the_losses_of_the_own(ground: Ground) -> None:
    path = ground.script(script("float16", is_scaled=True))
    facts = ground.probe(path)
    assert script_settings_of(facts).precision == "fp16"
    plain, changed = ground.trial(path, facts), ground.trial(path, facts, precision="bf16")
    assert plain.outcome == changed.outcome == "ok", changed.verdict
    assert (plain.rank.observed["precision"], changed.rank.observed["precision"]) == ("fp16", "bf16")
    losses = zip(plain.rank.first_losses, changed.rank.first_losses, strict=True)
    assert all(abs(one - two) <= TOLERANCES["bf16"] * one < 10.0 for one, two in losses), "the losses are scaled"


def test_a_bf16_script_without_a_scaler_trains_in_fp16_with_a_scaler_of_ours(ground: Ground) -> None:
    path = ground.script(script("bfloat16", is_scaled=False, epochs=1))
    facts = ground.probe(ground.script(script("bfloat16", is_scaled=False)))
    own, changed = ground.train(path, facts).said, ground.train(path, facts, precision="fp16").said
    assert changed["formats"] == ["torch.float16"]
    assert changed["norms"] == pytest.approx(own["norms"], rel=0.05), "gradients are unscaled for the script"


def test_regions_of_two_formats_are_left_to_the_script(ground: Ground) -> None:
    text = script("float16", is_scaled=False).replace(
        "            optimizer.zero_grad()\n",
        "            optimizer.zero_grad()\n"
        '            with torch.autocast("cpu", dtype=torch.bfloat16):\n'
        "                model(inputs)\n",
    )
    facts = ground.probe(ground.script(text))
    assert facts.own_autocast == "bfloat16, float16"
