"""Whole trials and real training with copies ahead, on made-up streams: with gate, workers, epochs and every ending."""

from __future__ import annotations

import pytest

from .ground import Ground

SCRIPT = """
    from contextlib import nullcontext
    from types import SimpleNamespace

    import torch
    from torch.utils.data import DataLoader, TensorDataset
    from autotune.trial.loader import copies_ahead

    event = SimpleNamespace(query=lambda: True)
    stream = SimpleNamespace(
        wait_stream=lambda other: None, wait_event=lambda event: None, record_event=lambda: event
    )
    torch.cuda.Stream = lambda device: stream
    torch.cuda.current_stream = lambda device=None: stream
    torch.cuda.stream = lambda stream: nullcontext()
    torch.Tensor.record_stream = lambda *arguments: None
    copies_ahead._is_on_device = lambda made: True

    torch.manual_seed(3)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    examples = TensorDataset(torch.randn(160, 16), torch.randn(160, 4))
    for epoch in range(EPOCHS):
        seen = 0
        for inputs, targets in DataLoader(examples, batch_size=16):
            inputs, targets = COPY
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += 1
        print("batches", seen)
"""
COPIES, STAYS = 'inputs.to("cpu", copy=True), targets.to("cpu", copy=True)', "inputs, targets"


def text(copy: str = COPIES, epochs: int = 999) -> str:
    return SCRIPT.replace("COPY", copy).replace("EPOCHS", str(epochs))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_trial_with_copies_ahead_trains_alike_and_is_measured(ground: Ground, num_workers: int) -> None:
    script = ground.script(text())
    facts = ground.probe(script)
    plain = ground.trial(script, facts, num_workers=num_workers)
    ahead = ground.trial(script, facts, job={"device": "cuda"}, num_workers=num_workers, stream_prefetch=True)
    assert ahead.outcome == plain.outcome == "ok", ahead.verdict
    assert ahead.rank.observed["stream_prefetch"] is True and "stream_prefetch" not in plain.rank.observed
    assert ahead.rank.start_digest == plain.rank.start_digest
    assert ahead.rank.first_losses[:10] == plain.rank.first_losses[:10]
    assert not ahead.rank.is_primed


def test_a_trial_of_a_script_that_copies_nothing_is_invalid_by_name(ground: Ground) -> None:
    script = ground.script(text(STAYS))
    run = ground.trial(script, ground.probe(script), job={"device": "cuda"}, stream_prefetch=True)
    assert run.outcome == "invalid", run.verdict
    assert run.verdict is not None and "the script copies no tensor of its batches" in str(run.verdict)


def test_real_training_sees_every_batch_once_and_says_what_is_in_force(ground: Ground) -> None:
    script = ground.script(text(epochs=2))
    run = ground.train(script, ground.probe(script), job={"device": "cuda"}, stream_prefetch=True)
    assert run.code == 0, run.output
    assert run.output.count("batches 10") == 2
    assert "in force: stream_prefetch True" in run.output and "NOT" not in run.output


def test_real_training_of_a_script_that_copies_nothing_ends_with_the_lines_to_write(ground: Ground) -> None:
    script = ground.script(text(STAYS, epochs=2))
    run = ground.train(script, ground.probe(script), job={"device": "cuda"}, stream_prefetch=True)
    assert run.code == 2, run.output
    assert "NOT in force: stream_prefetch False" in run.output and "cfg.on_device(loader, device)" in run.output
