"""Scripts of Lightning and Hugging Face under `autotune.integrations`, and under arguments of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.emit.writing import write_config
from autotune.model.maps import all_maps, mapped_arguments, mapped_settings
from autotune.model.outcome import Outcome
from autotune.settings import Group, Precision, Settings
from autotune.space.script_settings import script_settings_of
from tests.integration.frameworks import scripts
from tests.integration.trial.ground import Ground, space_of
from tests.unit.emit.example import FACTS, tuned_config

pytestmark = pytest.mark.slow
SPLIT = Settings(batch_size=8, grad_accum_steps=4, precision=Precision.BF16, num_workers=1)
ONE_EPOCH_STEPS = 512 // 32
LIMIT_S = 120.0


def lightning_script(package: str = scripts.OF_LIGHTNING, loader: str = scripts.FROM_CONFIG, epochs: int = 200) -> str:
    pytest.importorskip("lightning", reason="lightning is not installed; `make test-all` installs it")
    text = scripts.LIGHTNING.replace("PACKAGE", package).replace("LOADER", loader)
    return text.replace("EPOCHS", str(epochs))


def huggingface_script(text: str = scripts.HUGGINGFACE, epochs: int = 200) -> str:
    pytest.importorskip("transformers", reason="transformers is not installed; `make test-all` installs it")
    return text.replace("EPOCHS", str(epochs))


def trained(folder: Path, text: str) -> tuple[int, str]:
    """Exit code and output of real training beside the tuned config that is there."""
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-W", "ignore", "train.py"]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def tune(folder: Path) -> None:
    config = tuned_config(
        settings=SPLIT, script_natural=Settings(batch_size=32), script_facts=replace(FACTS, device="cpu")
    )
    write_config(folder / "autotune.yaml", config, force=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (lambda: lightning_script(epochs=1), f"STEPS {ONE_EPOCH_STEPS} 4 bf16-mixed 8"),
        (lambda: lightning_script(scripts.OF_OLD_NAME, epochs=1), f"STEPS {ONE_EPOCH_STEPS} 4 bf16-mixed 8"),
        (lambda: huggingface_script(epochs=1), f"STEPS {ONE_EPOCH_STEPS} 4 True 8"),
    ],
    ids=["lightning", "pytorch_lightning", "huggingface"],
)
def test_one_line_trains_with_the_tuned_config_at_the_same_effective_batch(text, words, tmp_path) -> None:
    tune(tmp_path)
    code, output = trained(tmp_path, text())
    assert (code, words in output) == (0, True), output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (lambda: lightning_script(epochs=1), f"STEPS {ONE_EPOCH_STEPS} 1 32-true 32"),
        (lambda: huggingface_script(epochs=1), f"STEPS {ONE_EPOCH_STEPS} 1 False 32"),
    ],
    ids=["lightning", "huggingface"],
)
def test_without_a_tuned_config_the_script_trains_as_it_is_written(text, words, tmp_path) -> None:
    code, output = trained(tmp_path, text())
    assert (code, words in output) == (0, True), output


def test_a_loader_that_the_tuned_config_does_not_reach_is_refused_before_it_trains_another_batch(tmp_path) -> None:
    tune(tmp_path)
    code, output = trained(tmp_path, lightning_script(loader=scripts.BY_HAND, epochs=1))
    assert (code, "The training loader has batch_size 32, and the config says 8." in output) == (1, True), output


@pytest.mark.parametrize("text", [lightning_script, huggingface_script], ids=["lightning", "huggingface"])
def test_a_trial_is_accumulated_and_cast_by_the_framework_alone(text, ground: Ground) -> None:
    script = ground.script(text())
    facts = ground.probe(script, limit_s=LIMIT_S)
    assert {Group.BATCH, Group.PRECISION, Group.LOADER} <= set(facts.claims)
    space = space_of(facts)
    assert len(space.allowed["split"]) > 1 and "bf16" in space.allowed["precision"]
    run = ground.trial(
        script, facts, limit_s=LIMIT_S, batch_size=8, grad_accum_steps=4, precision=Precision.BF16, num_workers=1
    )
    assert run.outcome is Outcome.OK, (run.verdict, run.output)
    observed = run.rank.observed
    names = ("batch_size", "grad_accum_steps", "precision", "num_workers")
    assert [observed[name] for name in names] == [8, 4, "bf16", 1]


def test_a_loader_that_no_trial_could_change_is_refused_in_the_probe(ground: Ground) -> None:
    script = ground.script(lightning_script(loader=scripts.BY_HAND))
    with pytest.raises(AssertionError, match="The training loader is not built from the config that accumulates"):
        ground.probe(script, limit_s=LIMIT_S)


def test_an_unedited_script_of_hugging_face_is_given_batch_and_accumulation_as_arguments(ground: Ground) -> None:
    script = ground.script(huggingface_script(scripts.UNEDITED_HUGGINGFACE))
    own = ("--use_cpu", "--num_train_epochs=200", "--report_to=none", "--per_device_train_batch_size=32")
    facts = ground.probe(script, *own, limit_s=LIMIT_S)
    maps = all_maps((), facts)
    assert mapped_settings(maps) == {"batch_size", "grad_accum_steps", "num_workers"}
    assert len(space_of(facts).allowed["split"]) > 1
    script_settings = script_settings_of(facts)
    changes = {"batch_size": 8, "grad_accum_steps": 4, "num_workers": 1}
    words = mapped_arguments(replace(script_settings, **changes), script_settings, maps)
    job = {"mapped": tuple(sorted(mapped_settings(maps)))}
    run = ground.trial(script, facts, *own, *words, limit_s=LIMIT_S, job=job, precision=Precision.BF16, **changes)
    assert run.outcome is Outcome.OK, (run.verdict, run.output)
    observed = run.rank.observed
    names = ("batch_size", "grad_accum_steps", "precision", "num_workers")
    assert [observed[name] for name in names] == [8, 4, "bf16", 1]
