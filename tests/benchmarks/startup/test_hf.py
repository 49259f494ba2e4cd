"""Trials of a Hugging Face Trainer's script, which imports pyarrow, start as soon as any others."""

from __future__ import annotations

import pytest

from tests.benchmarks.startup.trials import HF_JOB, open_trials


@pytest.mark.slow
def test_trials_of_a_trainers_script_are_forked_and_prepared_and_train() -> None:
    for name in ("transformers", "accelerate", "datasets"):
        pytest.importorskip(name, reason="the script trains by it")
    with open_trials(HF_JOB, "tiny") as trials:
        results = {kind: trials.tried(kind, "1") for kind in ("cold", "forked", "prepared")}
    for kind, result in results.items():
        assert result.start == kind, result.start_reason
        assert "first step ended at" in result.log_tail, result.reason + result.log_tail
    losses = {result.ranks[0].first_losses for result in results.values() if result.ranks}
    assert len(losses) == 1, losses
