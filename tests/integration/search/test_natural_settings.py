"""Searches by the command on scripts that set something themselves: the baseline is what the script runs with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

CHANNELS_LAST = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class UNet(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.Conv2d(8, 4, 3, padding=1)

        def forward(self, images):
            return self.up(self.down(images).relu())

    images = TensorDataset(torch.randn(512, 4, 16, 16), torch.randn(512, 4, 16, 16))
    loader = DataLoader(images, batch_size=16, shuffle=True)
    model = UNet()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(100_000):
        for inputs, targets in loader:
            inputs = inputs.to(memory_format=torch.channels_last)
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""

PINNING = """
    import threading
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Pinned:
        # As with pin_memory=True on a device: a thread of the loader sets its own number of threads.
        def __init__(self, loader):
            self.loader = loader

        def __iter__(self):
            pinning = threading.Thread(target=torch.set_num_threads, args=(1,))
            pinning.start()
            pinning.join()
            return iter(self.loader)

    data = TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
    loader = Pinned(DataLoader(data, batch_size=16, shuffle=True))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(100_000):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""

OTHERWISE_LATER = """
    from pathlib import Path
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    is_first = not Path("prepared").exists()
    Path("prepared").write_text("done")
    Path("prepared").read_text()  # What a probe reads again is handed on to all that follow, as a download is.
    data = TensorDataset(torch.randn(512, 4, 8, 8), torch.randn(512, 4, 6, 6))
    model = torch.nn.Conv2d(4, 4, 3)
    if not is_first:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(100_000):
        for inputs, targets in DataLoader(data, batch_size=16):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


def autotune(project: Path, *arguments: str, num_threads: int = 2) -> tuple[int, dict[str, Any], str]:
    """Exit code, document and talk of a command with the JSON document as its output."""
    environment = {**os.environ, "HOME": str(project), "OMP_NUM_THREADS": str(num_threads)}
    command = [sys.executable, "-m", "autotune", *arguments, "--json"]
    ended = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=560, check=False
    )
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else {}, ended.stderr


def search(
    project: Path, script: str, *options: str, time: str = "2m", num_threads: int = 2
) -> tuple[int, dict[str, Any], str]:
    (project / "train.py").write_text(textwrap.dedent(script))
    narrow = ("--fix", "num_workers=0", "--fix", "omp_wait_policy=default", "--fix", "precision=fp32")
    words = ("search", "train.py", "--trials", "2", "--time", time, *narrow, *options)
    return autotune(project, *words, num_threads=num_threads)


def trials_of(project: Path) -> list[dict[str, Any]]:
    code, document, talk = autotune(project, "studies", "show", "train")
    assert code == 0, talk
    return list(document["trials"])


@pytest.mark.slow
def test_a_script_that_is_channels_last_by_itself_is_searched_so_and_without(tmp_path: Path) -> None:
    others = ("--fix", "intra_op_threads=2", "--fix", "batch_size=16")
    code, result, talk = search(tmp_path, CHANNELS_LAST, "--set", "channels_last=false,true", *others)
    assert code == 0, talk
    assert result["baseline"]["settings"]["channels_last"] is True
    assert "first trial shows" not in talk, "the probe reads what the trial reads"
    trials = trials_of(tmp_path)
    assert {trial["outcome"] for trial in trials} <= {"ok", "raced_out"}, talk
    assert {trial["settings"]["channels_last"] for trial in trials} == {False, True}


@pytest.mark.slow
def test_a_pinning_thread_does_not_hide_the_threads_that_train(tmp_path: Path) -> None:
    code, result, talk = search(tmp_path, PINNING)
    assert code == 0, talk
    assert result["baseline"]["settings"]["intra_op_threads"] == 2
    assert "sets torch's number of threads by itself" not in talk
    assert all(trial["outcome"] in ("ok", "raced_out") for trial in trials_of(tmp_path)), talk


def test_a_script_whose_probe_saw_something_else_is_searched_as_it_runs(tmp_path: Path) -> None:
    # A second thread waits for a core beside other tests, and would make the trials long.
    code, result, talk = search(tmp_path, OTHERWISE_LATER, time="60s", num_threads=1)
    assert code == 0, talk
    assert result["baseline"]["settings"]["channels_last"] is True
    assert "Your script's own settings are channels_last=true, as its first trial shows" in talk
    trials = trials_of(tmp_path)
    assert trials[0]["settings"]["channels_last"] is True and trials[0]["outcome"] == "ok"
    script = yaml.safe_load((tmp_path / "autotune.yaml").read_text())["script"]
    assert script["natural"]["channels_last"] is True
