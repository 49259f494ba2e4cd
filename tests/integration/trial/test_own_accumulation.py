"""A script's own accumulation, in the loop that the usual guides teach, is taken over by the script's variable."""

from __future__ import annotations

import pytest

from tests.integration.trial.ground import Ground, space_of

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    accumulation_steps = 4
    torch.manual_seed(3)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    examples = TensorDataset(torch.randn(4096, 16), torch.randn(4096, 4))

    def train():
        loader = DataLoader(examples, batch_size=8, shuffle=True, drop_last=True)
        for epoch in range(999):
            for number, (inputs, targets) in enumerate(loader):
                loss = torch.nn.functional.mse_loss(model(inputs), targets)
                loss = loss / accumulation_steps
                loss.backward()
                if (number + 1) % accumulation_steps == 0:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()

    train()
"""


@pytest.mark.parametrize(("size", "steps"), [(8, 4), (32, 1), (16, 2), (4, 8)])
def test_the_effective_batch_is_split_by_the_scripts_own_variable(ground: Ground, size: int, steps: int) -> None:
    script = ground.script(SCRIPT)
    facts = ground.probe(script)
    assert (facts.accumulation_variable, facts.num_micro_batches_per_step) == ("accumulation_steps", 4)
    assert len(space_of(facts).allowed["split"]) == 6
    run = ground.trial(script, facts, batch_size=size, grad_accum_steps=steps)
    assert run.outcome == "ok", run.verdict
    assert (run.rank.observed["batch_size"], run.rank.observed["grad_accum_steps"]) == (size, steps)


COPIES = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(3)
    model = torch.nn.Linear(16, 4)
    copy = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    optimizer = torch.optim.SGD([copy], lr=1e-6)
    examples = TensorDataset(torch.randn(4096, 16), torch.randn(4096, 4))
    loader = DataLoader(examples, batch_size=8, shuffle=True)
    for epoch in range(999):
        for inputs, targets in loader:
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            copy.grad = torch.cat([weight.grad.flatten() for weight in model.parameters()])
            optimizer.step()
            for weight, part in zip(model.parameters(), copy.split([64, 4])):
                weight.data.copy_(part.view_as(weight))
                weight.grad = None
"""


def test_a_batch_stays_whole_where_the_optimizer_steps_copies_of_the_weights(ground: Ground) -> None:
    """Held-back steps of DeepSpeed's ZeRO lost the gradients of all passes but the last, without a word."""
    facts = ground.probe(ground.script(COPIES))
    assert "steps_copies" in facts.notes
    assert "steps copies of the weights" in dict(space_of(facts).refused)["batch_size"]


def test_a_sum_that_is_divided_all_the_same_is_found_by_its_first_losses(ground: Ground) -> None:
    script = ground.script(
        SCRIPT.replace("mse_loss(model(inputs), targets)", 'mse_loss(model(inputs), targets, reduction="sum")')
    )
    facts = ground.probe(script)
    assert ground.trial(script, facts).outcome == "ok"
    run = ground.trial(script, facts, batch_size=32, grad_accum_steps=1)
    assert run.outcome == "invalid" and run.verdict is not None
    assert "does not divide its loss as its variable accumulation_steps says" in run.verdict.reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loss = loss / accumulation_steps", "pass"),
        ("% accumulation_steps == 0", "in (4, 8, 12, 16) or number % 4 == 3"),
        ("def train():", "def train(accumulation_steps=accumulation_steps):"),
        ("accumulation_steps", "every"),
    ],
    ids=["no division", "no rest", "a parameter", "another name"],
)
def test_a_loop_of_another_shape_is_refused_by_name(ground: Ground, before: str, after: str) -> None:
    text = SCRIPT.replace(before, after)
    facts = ground.probe(ground.script(text))
    assert facts.accumulation_variable == ""
    reason = dict(space_of(facts).refused)["batch_size"]
    assert "accumulates by itself, 4 micro-batches per step, in a loop of a shape of its own" in reason
