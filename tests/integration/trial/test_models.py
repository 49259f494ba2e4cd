"""Models of many shapes: their number format and memory format can be changed, and are seen to be in force."""

from __future__ import annotations

import statistics

import pytest

from autotune.settings import Precision
from autotune.space.derive import derive_space
from tests.integration.trial.ground import Ground
from tests.unit.facts import cpu_machine, search_spec

LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset

{model}

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset({inputs}, torch.randn(96)), batch_size=8)
for epoch in range(100000):
    for x, y in loader:
        optimizer.zero_grad()
        {call}.backward()
        optimizer.step()
"""
TOKENS, IMAGES = "torch.randn(96, 4, 8)", "torch.randn(96, 3, 8, 8)"
MEAN = "(model(x).float().mean((1, 2)) - y).square().mean()"
ENCODER = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        return self.encoder(x)
"""
FUNCTIONAL = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return torch.einsum("bti,io->bto", x, self.weight)
"""
CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x
"""
TASK = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).mean((1, 2, 3))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def to(self, *args, **kwargs):
        torch.empty(0).to(*args, **kwargs)
        return super().to(*args, **kwargs)

    def forward(self, x, target):
        return (self.net(x) - target).square().mean()
"""
NORMED = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = torch.nn.BatchNorm1d(4), torch.nn.Linear(8, 8)
        self.norm.train({trains})

    def forward(self, x):
        return self.head(self.norm(x))
"""


@pytest.mark.parametrize("trains", [True, False])
def test_frozen_batch_norm_layers_do_not_keep_the_batch_whole(ground: Ground, trains: bool) -> None:
    """Their statistics do not change with the micro-batch, as the refusal says of those that train."""
    model = NORMED.replace("{trains}", str(trains))
    facts = ground.probe(ground.script(LOOP.format(model=model, inputs=TOKENS, call=MEAN)))
    assert facts.num_batch_norms == int(trains)


@pytest.mark.parametrize("model", [ENCODER, FUNCTIONAL, CHECKPOINTED], ids=["attention", "functional", "checkpointed"])
def test_a_model_without_a_linear_layer_that_is_called_trains_in_bf16(ground: Ground, model: str) -> None:
    path = ground.script(LOOP.format(model=model, inputs=TOKENS, call=MEAN))
    facts = ground.probe(path)
    space = derive_space(facts, cpu_machine(), search_spec(ranges=(("compile", "false,true"),)))
    assert "bf16" in space.allowed["precision"], space.refused
    assert True in space.allowed["compile"], space.refused
    run = ground.trial(path, facts, precision=Precision.BF16)
    assert run.outcome == "ok", run.verdict
    assert run.rank.observed["precision"] == "bf16"


def test_a_task_with_a_to_of_its_own_trains_in_channels_last(ground: Ground) -> None:
    path = ground.script(LOOP.format(model=TASK, inputs=IMAGES, call="model(x, y)"))
    facts = ground.probe(path)
    assert True in derive_space(facts, cpu_machine(), search_spec()).allowed["channels_last"]
    run = ground.trial(path, facts, channels_last=True)
    assert run.outcome == "ok", run.verdict
    assert run.rank.observed["channels_last"] is True


TRACED = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.Dropout2d(0.5), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(1)
        )

    def forward(self, x):
        return self.layers(x)

torch.jit.trace(Model(), torch.randn(1, 3, 8, 8))
"""


def test_a_model_whose_graph_is_traced_first_is_probed_and_measured(ground: Ground) -> None:
    """TensorBoard's `add_graph` traces a model twice and compares the graphs; a public script of CIFAR-100 does so."""
    path = ground.script(LOOP.format(model=TRACED, inputs=IMAGES, call="(model(x).mean(1) - y).square().mean()"))
    facts = ground.probe(path)
    run = ground.trial(path, facts, channels_last=True)
    assert run.outcome == "ok", run.verdict


def test_a_step_that_asks_the_system_for_much_memory_is_seen_and_keeps_its_memory_in_a_trial(ground: Ground) -> None:
    model = FUNCTIONAL.replace("return torch", "x = x + torch.zeros(8 << 20).sum()\n        return torch")
    path = ground.script(LOOP.format(model=model, inputs=TOKENS, call=MEAN))
    facts = ground.probe(path)
    assert facts.keeps_freed_memory is False
    assert facts.pages_per_step is not None and facts.pages_per_step > 8000
    assert derive_space(facts, cpu_machine(), search_spec()).allowed["keep_freed_memory"] == (False, True)
    run = ground.trial(path, facts, keep_freed_memory=True)
    assert run.outcome == "ok", run.verdict
    assert run.rank.observed["keep_freed_memory"] is True


LARGER_LATER = """
import resource, torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4000, 4), torch.randn(4000, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
validation = DataLoader(data, batch_size=BATCH)
pages = 0
for epoch in range(1000):
    for x, y in DataLoader(data, batch_size=8):
        blocks = [bytearray(12 << 20) for _ in range(3)]
        blocks = None
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        before, pages = pages, resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        print("pages", pages - before, flush=True)
"""


@pytest.mark.parametrize(("batch_size", "is_larger"), [(8, False), (64, True)])
def test_a_trial_asks_for_the_memory_of_a_step_after_the_first_validation(
    ground: Ground, batch_size: int, is_larger: bool
) -> None:
    """A validation on larger batches changes the C library's rule for all epochs to come, and no trial comes to it."""
    path = ground.script(LARGER_LATER.replace("BATCH", str(batch_size)))
    facts = ground.probe(path)
    assert facts.frees_larger_blocks is is_larger
    assert facts.pages_per_step is not None and (facts.pages_per_step < 1000) is is_larger
    run = ground.trial(path, facts)
    assert run.outcome == "ok", run.verdict
    pages = [int(line.split()[1]) for line in run.output.splitlines() if line.startswith("pages ")]
    assert (statistics.median(pages) < 1000) is is_larger


SAVED = """
class Model(torch.nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
"""


@pytest.mark.parametrize("use", ["torch.save([model, optimizer], 'whole.pt')", "torch.jit.script(model)"])
def test_a_whole_module_is_saved_and_scripted_while_it_trains(ground: Ground, use: str) -> None:
    """Tutorials save the module and not its state; a local function in a hook of ours could not be saved."""
    loop = LOOP.replace("        optimizer.step()", f"        optimizer.step()\n        {use}")
    path = ground.script(loop.format(model=SAVED, inputs=TOKENS, call=MEAN))
    facts = ground.probe(path)
    run = ground.trial(path, facts, precision=Precision.BF16)
    assert run.outcome == "ok", run.verdict


def test_a_call_before_the_training_does_not_stand_for_the_batches_that_train(ground: Ground) -> None:
    """Tutorials print the shape of an output first: the memory and the operations of a step are those of a batch."""
    path = ground.script(LOOP.format(model=SAVED, inputs=TOKENS, call=MEAN))
    plain = ground.probe(path)
    loop = LOOP.replace("optimizer =", "print(model(torch.randn(1, 4, 8)).shape)\noptimizer =")
    facts = ground.probe(ground.script(loop.format(model=SAVED, inputs=TOKENS, call=MEAN)))
    assert facts.saved_bytes == plain.saved_bytes and facts.call_flops == plain.call_flops
    assert facts.saved_bytes is not None and facts.saved_bytes >= 8 * 4 * 8 * 4


def test_a_model_called_within_a_gradient_of_torch_func_is_probed_and_measured(ground: Ground) -> None:
    """Meta-learning and gradients of single samples call the model so; torch allows no hooks of saved tensors there."""
    before = """
def loss_of(weights, x):
    return torch.func.functional_call(model, weights, (x,)).mean()

optimizer ="""
    loop = LOOP.replace("optimizer =", before, 1).replace(
        "        optimizer.zero_grad()",
        "        torch.func.grad(loss_of)(dict(model.named_parameters()), x)\n        optimizer.zero_grad()",
    )
    path = ground.script(loop.format(model=SAVED, inputs=TOKENS, call=MEAN))
    facts = ground.probe(path)
    run = ground.trial(path, facts, precision=Precision.BF16)
    assert run.outcome == "ok", run.verdict
