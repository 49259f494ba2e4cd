"""The form of the script's optimizer, changed by a trial before the first step."""

from __future__ import annotations

import pytest

from autotune.space.script_settings import script_settings_of
from tests.integration.trial.ground import Ground, space_of

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(3)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.AdamW(model.parameters(), OPTIONS)
    examples = TensorDataset(torch.randn(2048, 16), torch.randn(2048, 4))
    for epoch in range(999):
        for inputs, targets in DataLoader(examples, batch_size=16):
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(("own", "other"), [("default", "fused"), ("fused", "default")])
def test_a_form_is_put_in_force_over_the_scripts_own_and_trains_alike(ground: Ground, own: str, other: str) -> None:
    script = ground.script(SCRIPT.replace("OPTIONS", "lr=0.01" + (", fused=True" if own == "fused" else "")))
    facts = ground.probe(script)
    assert script_settings_of(facts).optimizer_form == own
    assert set(space_of(facts).allowed["optimizer_form"]) == {"default", "fused"}
    plain, changed = ground.trial(script, facts), ground.trial(script, facts, optimizer_form=other)
    assert plain.outcome == changed.outcome == "ok", changed.verdict
    assert (plain.rank.observed["optimizer_form"], changed.rank.observed["optimizer_form"]) == (own, other)
    losses = zip(plain.rank.first_losses[:20], changed.rank.first_losses[:20], strict=True)
    assert all(abs(one - two) < 1e-4 * abs(one) for one, two in losses)


def test_real_training_applies_the_form(ground: Ground) -> None:
    ending = SCRIPT.replace("OPTIONS", "lr=0.01").replace("range(999)", "range(1)")
    script = ground.script(ending + "    print(optimizer.param_groups[0]['fused'])\n")
    run = ground.train(script, ground.probe(script), optimizer_form="fused")
    assert run.code == 0 and "True" in run.output, run.output
