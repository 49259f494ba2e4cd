from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotune.trial.start import active_session


@pytest.fixture(autouse=True)
def a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, no session, no variables of a launcher, and torch's switches put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(active_session, "session", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("WORLD_SIZE", "OMP_WAIT_POLICY", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    num_threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    benchmark, tf32 = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32
    yield
    torch.set_num_threads(num_threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = benchmark, tf32
