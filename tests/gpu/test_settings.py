"""Settings in force on a CUDA device, each read back from torch and training as the script's own settings train."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from tests.gpu.bench import Bench, rank_of

pytestmark = pytest.mark.gpu

LOSS_TOLERANCE = 0.1
"""Share of the first loss for the mean of ten losses: kernels draw the masks of dropout differently."""


@pytest.mark.parametrize(
    ("script", "changes"),
    [
        ("attends.py", {"sdpa_backend": "math"}),
        ("attends.py", {"sdpa_backend": "efficient"}),
        ("attends.py", {"sdpa_backend": "flash", "precision": "bf16"}),
        ("attends.py", {"optimizer_form": "fused"}),
        ("attends.py", {"activation_checkpointing": True}),
        ("attends.py", {"compile": True, "compile_mode": "reduce-overhead"}),
        ("attends.py", {"compile": True, "compile_mode": "max-autotune"}),
        ("attends.py", {"compile": True, "compile_mode": "max-autotune-no-cudagraphs"}),
        ("attends.py", {"optimizer_form": "for_loop"}),
    ],
    ids=str,
)
def test_a_setting_is_in_force_and_trains_alike(bench: Bench, script: str, changes: dict[str, Any]) -> None:
    jobs = bench.probed(script)
    own = bench.run(bench.trial(jobs))
    result = bench.run(bench.trial(jobs, **changes))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert {name: rank_of(result).observed[name] for name in changes} == changes
    first, losses = rank_of(own).first_losses[:10], rank_of(result).first_losses[:10]
    assert statistics.fmean(losses) == pytest.approx(statistics.fmean(first), abs=LOSS_TOLERANCE * abs(first[0]))


def test_attention_is_seen_by_the_probe(bench: Bench) -> None:
    facts = bench.probed("attends.py").facts
    assert facts is not None and "attention" in facts.notes and "own_attention" not in facts.notes
