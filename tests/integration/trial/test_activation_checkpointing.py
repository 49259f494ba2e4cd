"""Blocks of an unedited script's model compute their activations again in a trial."""

from __future__ import annotations

from tests.integration.trial.ground import Ground, space_of

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(3)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    examples = TensorDataset(torch.randn(1024, 4, 16), torch.randn(1024, 4, 1))
    for epoch in range(999):
        for inputs, targets in DataLoader(examples, batch_size=16):
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
"""


def test_blocks_are_recomputed_in_a_trial_and_train_alike(ground: Ground) -> None:
    script = ground.script(SCRIPT)
    facts = ground.probe(script)
    assert (facts.num_repeated_blocks, facts.num_block_shapes) == (2, 1)
    assert space_of(facts, effective_batch="free").allowed["activation_checkpointing"] == (False, True)
    plain, changed = ground.trial(script, facts), ground.trial(script, facts, activation_checkpointing=True)
    assert plain.outcome == changed.outcome == "ok", changed.verdict
    assert plain.rank.observed["activation_checkpointing"] is False
    assert changed.rank.observed["activation_checkpointing"] is True
    losses = zip(plain.rank.first_losses[:10], changed.rank.first_losses[:10], strict=True)
    assert all(abs(one - two) < 1e-4 * abs(one) for one, two in losses)
