"""Graphs that torch's compiler stores are kept apart where torch's own key would mistake one for another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from autotune.settings import Precision, Settings, stored_kind
from autotune.settings.sdpa_backend import SdpaBackend
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import recorded, unwrap
from tests.jobs import changed
from tests.unit.facts import script_facts
from tests.unit.runner.samples import job

OWN = Settings(batch_size=8)
MATH = Settings(batch_size=8, sdpa_backend=SdpaBackend.MATH)

needs_tags = pytest.mark.skipif(
    not hasattr(getattr(torch.compiler, "config", None), "cache_key_tag"), reason="this torch has no tag on its key"
)

TRAINS_ATTENTION = """
import sys
import torch
from torch.profiler import profile
from autotune.trial.torch import torch_names

if sys.argv[1] == "math":
    torch.backends.cuda.enable_flash_sdp(False)
    torch_names.tag_stored_graphs("math")

@torch.compile
def attend(*parts):
    return torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True).sum()

parts = [torch.randn(2, 4, 64, 16, requires_grad=True) for _ in range(3)]
attend(*parts).backward()
with profile() as seen:
    attend(*parts).backward()
print(any("flash" in each.key for each in seen.key_averages()))
"""


@pytest.fixture(autouse=True)
def _tag_of_before() -> Iterator[None]:
    config = getattr(torch.compiler, "config", None)
    before = getattr(config, "cache_key_tag", None)
    if before is not None:
        config.cache_key_tag = ""  # Other tests of this process leave theirs.
    yield
    if config is not None and before is not None:
        config.cache_key_tag = before


def test_settings_that_change_no_graph_use_the_graphs_of_the_script() -> None:
    assert stored_kind(Settings(batch_size=8, num_workers=4), OWN) == ""


def test_kinds_of_graphs_have_names_of_their_own() -> None:
    kinds = {stored_kind(Settings(batch_size=8, precision=each), OWN) for each in (Precision.BF16, Precision.FP16)}
    assert len({"", *kinds, stored_kind(MATH, OWN)}) == 4


@needs_tags
def test_a_tag_leaves_the_scripts_own_tag_as_it_was() -> None:
    torch.compiler.config.cache_key_tag = "mine "
    for kind in ("first", "second"):
        torch_names.tag_stored_graphs(kind)
        assert torch.compiler.config.cache_key_tag == f"mine {torch_names.TAG_MARK}{kind}"
    torch_names.tag_stored_graphs("")
    assert torch.compiler.config.cache_key_tag == "mine "


@needs_tags
@pytest.mark.parametrize("mapped", [(), ("precision",)], ids=["by a seam", "by an argument"])
def test_settings_in_force_tag_stored_graphs_until_they_are_taken_back(mapped: tuple[str, ...]) -> None:
    before = torch.compiler.config.cache_key_tag
    asked = replace(OWN, precision=Precision.BF16)
    trial = changed(job(), settings=asked, script_settings=OWN, mapped=mapped, facts=script_facts())
    with recorded() as seams:
        applied = AppliedSettings(trial)
        applied.install()
        tag = torch.compiler.config.cache_key_tag
        applied.remove()
    assert not unwrap(seams)
    assert tag.startswith(before + torch_names.TAG_MARK) and "precision=bf16" in tag
    assert torch.compiler.config.cache_key_tag == before


def test_a_torch_without_tags_stores_no_graph_that_could_be_mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._functorch import config

    if not hasattr(config, "enable_autograd_cache"):  # torch 2.4
        pytest.skip("this torch stores no graph of a model")
    monkeypatch.setattr(torch.compiler, "config", SimpleNamespace(), raising=False)
    monkeypatch.setattr(config, "enable_autograd_cache", True)
    torch_names.tag_stored_graphs("")
    assert config.enable_autograd_cache
    torch_names.tag_stored_graphs("math")
    assert not config.enable_autograd_cache


@needs_tags
@pytest.mark.slow
def test_a_compiled_model_runs_the_kernels_asked_for_although_a_graph_with_others_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    script = tmp_path / "trains.py"
    script.write_text(TRAINS_ATTENTION)

    def uses_flash(backend: str) -> bool:
        ended = subprocess.run([sys.executable, str(script), backend], capture_output=True, text=True, check=True)
        return ended.stdout.split() == ["True"]

    assert [uses_flash(backend) for backend in ("default", "math", "default")] == [True, False, True]
