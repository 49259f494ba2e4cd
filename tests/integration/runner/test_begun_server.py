"""A fork server that begins beside the probe serves the first trial, which sees what the probe has handed on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.protocol.job import Mode
from autotune.runner import fork_runner, probe_runner
from autotune.runner.fork_server import ForkServer
from autotune.runner.probe_runner import ProbeRunner
from autotune.runner.server_start import start_server
from autotune.sandbox.tree_removal import remove_tree
from autotune.space.script_settings import script_settings_of
from tests.integration.runner.ground import Ground, digest, protection_of
from tests.integration.runner.study import BRIEF, Study
from tests.integration.runner.test_forked import STARTS_A_NATIVE_THREAD

SCRIPT = """
from pathlib import Path

import torch

cache = Path("cache.txt")
print("cached" if cache.exists() else "computed")
cache.write_text("costly")
print(cache.read_text())
Path("imported.txt").write_text(" ".join(sorted(name for name in ("torch", "json") if name in globals())))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(256, 4)), batch_size=16)
while True:
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
"""


@pytest.fixture
def ground(are_layers_permitted: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """A user's project under layers, on a machine with processors enough for a second import of torch."""
    monkeypatch.setattr(probe_runner, "LEAST_CPUS", 1)
    protection = protection_of("layers", are_layers_permitted=are_layers_permitted)
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    home = os.environ.get("HOME", "/")
    made = Ground(root, protection)
    (made.user / "caches.py").write_text(SCRIPT)
    made.before = digest(made.user, made.home)
    yield made
    os.environ["HOME"] = home
    remove_tree(root)


def probed_study(ground: Ground, first: ProbeRunner) -> Study:
    """The study of the script, after its probe."""
    job = ground.job("caches.py", mode=Mode.PROBE, settings=None, script_settings=None, facts=None)
    probed = first.start(replace(job, start_limit_s=120.0, total_limit_s=120.0)).probe_result()
    assert probed.facts is not None, f"{probed.reason} {probed.log_tail}"
    assert "computed" in probed.log_tail
    ground.workspace.probe_is_through()
    return Study(ground, ground.runner, probed.facts, script_settings_of(probed.facts), "caches.py")


def test_the_first_trial_is_forked_from_the_server_that_began_beside_the_probe(ground: Ground) -> None:
    with closing(ProbeRunner(ground.runner)) as first:
        study = probed_study(ground, first)
        [begun] = ground.folders_left()
        trials: Any = first.for_trials(study.facts, ground.runner._device)
    with closing(trials):
        for number in range(2):
            result = trials.start(replace(study.job(), request=replace(study.job().request, window=BRIEF))).result()
            assert result.outcome is Outcome.OK, result.reason + result.log_tail
            assert result.start == "forked", result.start_reason
            assert "cached" in result.log_tail, "the trial reads what the probe has handed on"
            assert ground.folders_left() == [begun], "no other server was started"
            assert result.saved_s > 0 and (result.durations_s.get("server", 0.0) > 0) == (number == 0)
    assert ground.folders_left() == [] and ground.processes_left() == []
    assert digest(ground.user, ground.home) == ground.before


def test_an_import_that_starts_a_thread_ends_the_server_begun_and_no_other_is_tried(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = ground.root / "packages"
    packages.mkdir()
    (packages / "starts_natively.py").write_text(
        STARTS_A_NATIVE_THREAD.replace("NAME", "driver").replace("LIBRARY", "libdriver.so")
    )
    monkeypatch.setenv("PYTHONPATH", str(packages))
    started = []

    def counted(*arguments: Any, **options: Any) -> ForkServer:
        started.append(start_server(*arguments, **options))
        return started[-1]

    for module in (probe_runner, fork_runner):
        monkeypatch.setattr(module, "start_server", counted)
    with closing(ProbeRunner(ground.runner)) as first:
        study = probed_study(ground, first)
        facts = replace(study.facts, imports=(*study.facts.imports, "starts_natively"))
        trials: Any = first.for_trials(facts, ground.runner._device)
    with closing(trials):
        result = trials.start(replace(study.job(), request=replace(study.job().request, window=BRIEF))).result()
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert result.start == "cold" and "1 thread (driver) outside of Python" in result.start_reason
    assert len(started) == 1, "a second server would import the same"


def test_a_server_begun_for_a_probe_without_trials_is_gone_with_the_probes_runner(ground: Ground) -> None:
    with closing(ProbeRunner(ground.runner)) as first:
        probed_study(ground, first)
        server = first._server
        assert server is not None and server.is_alive()
    assert not server.is_alive()
    assert ground.folders_left() == [] and ground.processes_left() == []
