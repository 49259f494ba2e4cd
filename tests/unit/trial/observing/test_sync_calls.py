from __future__ import annotations

import io
from contextlib import redirect_stdout

import torch

from autotune.trial.observing.sync_calls import NAMES, SyncCalls

SCRIPT = """
def measure(x):
    a = x.sum().item()
    b = bool(x.sum() > 0)
    c = x.tolist(), float(x[0]), x.cpu(), x.numpy()
    print(x)
    optimizer.step()
    return a, b, c
"""


def run(tmp_path, calls):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    namespace = {"optimizer": torch.optim.Adam([parameter], foreach=False)}
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    exec(compile(SCRIPT, str(path), "exec"), namespace)
    calls.attach()
    try:
        with redirect_stdout(io.StringIO()) as printed:
            result = namespace["measure"](torch.ones(3))
    finally:
        calls.detach()
    return result, printed.getvalue()


def test_every_call_is_counted_at_its_line_and_gives_what_it_gives(tmp_path):
    calls = SyncCalls("cpu")
    (a, b, c), printed = run(tmp_path, calls)
    assert (a, b, c[0], c[1], printed) == (3.0, True, [1.0] * 3, 1.0, "tensor([1., 1., 1.])\n")
    seen = {(stack[0][1], what): count for (stack, what), count in calls.counts.items()}
    assert seen == {
        (3, "Tensor.item"): 1,
        (4, "bool(tensor)"): 1,
        (5, "Tensor.tolist"): 1,
        (5, "float(tensor)"): 1,
        (5, "Tensor.cpu"): 1,
        (5, "Tensor.numpy"): 1,
        (6, "print(tensor)"): 1,
    }


def test_on_an_accelerator_tensors_of_the_host_wait_for_nothing(tmp_path):
    calls = SyncCalls("cuda")
    run(tmp_path, calls)
    assert not calls.counts


def test_afterwards_tensors_are_what_they_were():
    before = {name: vars(torch.Tensor).get(name) for name in NAMES}
    methods = {name: getattr(torch.Tensor, name) for name in NAMES}
    calls = SyncCalls("cpu")
    calls.attach()
    assert torch.Tensor.item is not methods["item"]
    calls.detach()
    assert {name: vars(torch.Tensor).get(name) for name in NAMES} == before
    assert torch.ones(1).item() == 1.0 and bool(torch.ones(1)) and f"{torch.ones(()):.1f}" == "1.0"
