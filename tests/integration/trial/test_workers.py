"""A loader's workers and pinning thread: nothing of ours acts there, and nothing there is taken for the script's."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from autotune.settings import Precision
from tests.integration.trial.ground import INJECT, Ground

PINNED = """
    import threading
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def pinning():
        torch.set_num_threads(1)  # as torch's own thread does where there is a device

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(4096, 8), torch.randn(4096, 1)), batch_size=16)
    OWN
    for _ in range(99):
        thread = threading.Thread(target=pinning, name="Thread-1 (_pin_memory_loop)")
        thread.start()
        thread.join()
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
"""

CONVERTING = """
    import os
    import sys
    import torch
    from torch.utils.data import DataLoader, Dataset

    main = os.getpid()

    def is_pinned(tensor, *_):
        # A forked process of one that has started CUDA gets this answer from the driver.
        if __name__ != "__main__" or os.getpid() != main:
            raise RuntimeError("CUDA error: initialization error")
        return False

    torch.Tensor.is_pinned = is_pinned

    class Photos(Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            return torch.full((8,), index % 7, dtype=torch.uint8).to(torch.float32).to("cpu").to(device="cpu")

    def main_loop():
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        loader = DataLoader(Photos(), batch_size=16, num_workers=1, multiprocessing_context="METHOD")
        for _ in range(int(sys.argv[1])):
            for inputs in loader:
                model(inputs).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

    if __name__ == "__main__":
        main_loop()
"""

TRANSFORMING = """
    import os
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Photos(Dataset):
        transform = torch.nn.Sequential(torch.nn.Linear(8, 8))

        def __len__(self):
            return 4096

        def __getitem__(self, index):
            made = self.transform(torch.ones(8))
            assert made.dtype == torch.float32, f"a worker computes in {made.dtype}"
            return made.detach()

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(Photos(), batch_size=16, num_workers=1)
    for _ in range(99):
        for inputs in loader:
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize(("own", "is_own"), [("", False), ("torch.set_num_threads(1)", True)])
def test_only_threads_that_the_script_sets_where_it_trains_are_its_own(ground: Ground, own: str, is_own: bool) -> None:
    facts = ground.probe(ground.script(PINNED.replace("OWN", own)))
    assert facts.own_threads is is_own


def test_the_probe_reads_the_threads_of_the_training_and_not_of_the_pinning() -> None:
    script = (
        "import threading, torch\n"
        "from autotune.trial.loader.loaders import Loaders\n"
        "from autotune.trial.step.roots import Roots\n"
        "from autotune.trial.step.steps import Steps\n"
        "from autotune.trial.probe.script_detector import ScriptDetector\n"
        "detector = ScriptDetector(loaders=Loaders(), steps=Steps(), roots=Roots(), started_at=0.0, num_steps=1)\n"
        "detector.attach()\n"
        "pinning = threading.Thread(target=torch.set_num_threads, args=(1,))\n"
        "pinning.start(); pinning.join()\n"
        "facts = detector.facts(1)\n"
        "print(facts.intra_op_threads, facts.own_threads)\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["2", "False"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("runs", ["a trial", "autotune run"])
def test_copies_that_do_not_wait_ask_nothing_of_cuda_in_a_worker(ground: Ground, method: str, runs: str) -> None:
    script = ground.script(CONVERTING.replace("METHOD", method))
    facts = ground.probe(script, "1")
    changes: dict[str, Any] = {"non_blocking": True, "pin_memory": True}
    if runs == "a trial":
        run = ground.trial(script, facts, "99", job={"device": "cuda"}, **changes)
        assert run.outcome == "ok", run.verdict
    else:
        run = ground.train(script, facts, "1", job={"device": "cuda"}, **changes)
        assert "initialization error" not in run.output and run.code == 0, run.output


def test_a_module_that_a_worker_calls_computes_as_the_script_says(ground: Ground) -> None:
    script = ground.script(TRANSFORMING)
    facts = ground.probe(script)
    run = ground.trial(script, facts, precision=Precision.BF16)
    assert run.outcome == "ok", run.verdict


def test_an_autocast_region_is_not_made_in_a_process_that_cannot_ask_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune.trial.step import autocast
    from autotune.trial.torch import torch_names

    monkeypatch.setattr(torch_names, "is_cuda_lost", lambda: True)
    monkeypatch.setattr(autocast.torch, "autocast", lambda *_, **__: pytest.fail("CUDA is asked"))
    autocast.AutocastRegion("cuda", Precision.BF16).open()


def test_importing_torch_in_an_fp16_trial_asks_nothing_of_cuda() -> None:
    """A spawned worker imports torch, and so does a script that says later which devices it may see."""
    script = (
        "import torch\n"
        "def asked(): raise SystemExit('CUDA is asked')\n"
        "torch.cuda.is_available = asked\n"
        "from autotune.model.facts import LossReduction\n"
        "from autotune.trial.step.gradients import Gradients\n"
        "from autotune.trial.step.steps import Steps\n"
        "Gradients(Steps(), grad_accum_steps=1, reduction=LossReduction.MEAN, scaled_on='cuda').install()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(INJECT.parents[2])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
