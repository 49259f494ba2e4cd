"""Arguments of DistributedDataParallel with two real ranks: put in force by a trial, and by the script's own line."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.fsdp

from autotune.emit.tuned_config import config_text
from autotune.model.facts import LossReduction, ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult
from autotune.protocol.job import Mode
from autotune.settings import Precision, Settings
from autotune.settings.ddp_group import ARGUMENTS
from autotune.space.script_settings import script_settings_of
from autotune.verdict.judge import Ending, judge
from tests.integration.trial.ground import SCRIPTS
from tests.integration.trial.test_ranks import run, started_by
from tests.unit.emit.example import tuned_config

pytestmark = pytest.mark.slow
CHANGES: dict[str, Any] = {"gradient_as_bucket_view": True, "static_graph": True, "bucket_mb": 50}
REPOSITORY = Path(__file__).parents[3]


def measured(command: tuple[str, ...], folder: Path, facts: ScriptFacts, settings: Settings) -> list[RankResult]:
    """The reports of all ranks of a trial that came through."""
    own = script_settings_of(facts)
    (job, code), reports = run(command, folder, mode=Mode.TRIAL, settings=settings, script_settings=own, facts=facts)
    verdict = judge(job, Ending(exit_code=code, signal=None), reports)
    assert verdict.outcome is Outcome.OK, (settings, verdict)
    return reports


def test_every_rank_of_a_trial_wraps_its_model_by_the_arguments_and_trains_alike(tmp_path: Path) -> None:
    command = started_by("torchrun")
    _, reports = run(command, tmp_path / "probe", mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    assert reports[0].facts is not None
    facts = replace(reports[0].facts, loss_reduction=LossReduction.MEAN)
    assert {name for name, _ in facts.own_ddp} == {*ARGUMENTS, "find_unused_parameters"}
    own = script_settings_of(facts)
    losses = {}
    trials = [
        {},
        *({name: value} for name, value in CHANGES.items()),
        {**CHANGES, "batch_size": 4, "grad_accum_steps": 2},
    ]
    for number, changes in enumerate(trials):
        settings = replace(own, **changes)
        reports = measured(command, tmp_path / f"trial-{number}", facts, settings)
        expected = {name: getattr(settings, name) for name in (*ARGUMENTS, "grad_accum_steps")}
        for report in reports:
            assert {name: report.observed[name] for name in expected} == expected, (changes, report.rank)
        losses[number] = reports[0].first_losses
    for number in range(1, len(CHANGES) + 1):
        assert losses[number][:10] == pytest.approx(losses[0][:10], rel=1e-5), trials[number]


def test_buckets_of_a_model_in_channels_last_lie_as_its_weights_do(tmp_path: Path) -> None:
    """Fused optimizers on CUDA refuse gradients in another format than their weights."""
    command = started_by("torchrun", "--images")
    _, reports = run(command, tmp_path / "probe", mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    facts = reports[0].facts
    assert facts is not None
    own = script_settings_of(facts)
    settings = replace(own, channels_last=True, gradient_as_bucket_view=True)
    reports = measured(command, tmp_path / "trial", facts, settings)
    assert [report.observed["channels_last"] for report in reports] == [True, True]


@pytest.mark.skipif(not hasattr(torch.distributed.fsdp, "fully_shard"), reason="this torch has no fully_shard")
def test_a_model_whose_weights_are_shared_out_over_the_ranks_is_told_and_trains_alike(tmp_path: Path) -> None:
    command = started_by("torchrun", "--sharded")
    _, reports = run(command, tmp_path / "probe", mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    assert reports[0].facts is not None
    facts = replace(reports[0].facts, loss_reduction=LossReduction.MEAN)
    assert "sharded" in facts.notes and "ddp" not in facts.notes
    assert facts.num_parameters == 4 * 64 + 64 + 64 * 3 + 3
    whole_bytes = 4 * facts.num_parameters
    assert 0.5 * whole_bytes <= facts.parameter_bytes < 0.6 * whole_bytes, "the first rank has the odd row"
    assert whole_bytes <= facts.optimizer_state_bytes < 1.2 * whole_bytes
    own = script_settings_of(facts)
    losses = []
    in_parts = {"batch_size": 4, "grad_accum_steps": 2}
    for number, changes in enumerate([{}, {"precision": Precision.BF16}, in_parts, {"batch_size": 4}]):
        reports = measured(command, tmp_path / f"trial-{number}", facts, replace(own, **changes))
        assert {name: reports[0].observed[name] for name in changes} == changes
        losses.append(reports[0].first_losses)
    assert losses[1][:8] == pytest.approx(losses[0][:8], rel=0.02)
    # The first steps repeat one batch, here of 4: in two equal parts it moves the weights as it does alone.
    assert losses[2][0:8:2] == pytest.approx(losses[3][:4], rel=1e-4) and losses[3][3] < losses[3][0]


def trained(*arguments: str) -> tuple[dict[str, Any], list[float]]:
    """The arguments of the wrapper, and the weights after two epochs of real training."""
    command = started_by("torchrun", "--epochs", "2", *arguments)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, env=environment, cwd=SCRIPTS, capture_output=True, text=True, timeout=200, check=False
    )
    assert ended.returncode == 0, ended.stderr
    wrapper, weights = ended.stdout.splitlines()[-2:]
    return json.loads(wrapper), json.loads(weights)


def test_a_script_that_asks_for_the_arguments_trains_by_them(tmp_path: Path) -> None:
    config = tmp_path / "tuned.yaml"
    config.write_text(config_text(tuned_config(settings=Settings(**CHANGES), provenance_world_size=2), "yaml"))
    own, weights = trained()
    assert own == {"gradient_as_bucket_view": False, "static_graph": False, "bucket_bytes_cap": 25 << 20}
    tuned, tuned_weights = trained("--config", str(config))
    assert tuned == {"gradient_as_bucket_view": True, "static_graph": True, "bucket_bytes_cap": 50 << 20}
    assert tuned_weights == pytest.approx(weights, rel=1e-5)
