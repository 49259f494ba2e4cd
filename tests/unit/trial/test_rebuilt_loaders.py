"""Whether the source says that every epoch has a new loader."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.trial.loader.loaders import Loaders
from autotune.trial.loader.rebuilt_loaders import builds_each_round, running_calls
from autotune.trial.torch.patching import recorded, unwrap

PRELUDE = """
class Loader:
    def __init__(self):
        self.built = running_calls()[1:]

    def __iter__(self):
        answers.append(builds_each_round(self.built, running_calls()[1:]))
        return iter((1, 2))

def train_on(loader):
    for batch in loader:
        pass
"""
REBUILT = {
    "named": """
for epoch in range(2):
    loader = Loader()
    for batch in loader:
        pass
""",
    "without a name": """
for epoch in range(2):
    for number, batch in enumerate(Loader()):
        pass
""",
    "by a function of several lines": """
def make(size,
         shuffle=True):
    kept = size

    return Loader(
    )

def main():
    epoch = 0
    while epoch < 2:
        with open("/dev/null"):
            loader = make(
                3,
            )
        if epoch >= 0:
            train_on(loader)
        epoch += 1

if __name__ == "__main__":
    main()
""",
    "in the function of an epoch": """
class Trainer:
    def epoch(self):
        self.loader = Loader()
        train_on(self.loader)

    def fit(self):
        for _ in range(2):
            try:
                self.epoch()
            finally:
                pass

Trainer().fit()
""",
    "by a method with a text that begins at the left": """
class Trainer:
    def make(self):
        self.says = '''
left
'''
        return Loader()

trainer = Trainer()
for epoch in range(2):
    train_on(trainer.make())
""",
    "by a lambda": """
make = lambda: Loader()
for epoch in range(2):
    for batch in make():
        pass
""",
    "in a generator": """
def batches():
    while True:
        loader = Loader()
        yield from loader

source = batches()
for step in range(4):
    next(source)
""",
    "both loaders in a loop over their names": """
for epoch in range(2):
    loaders = {}
    for name in ("train", "val"):
        loaders[name] = Loader()
    train_on(loaders["train"])
""",
}
KEPT = {
    "before the epochs": """
loader = Loader()
for epoch in range(2):
    train_on(loader)
""",
    "once for each fold": """
for fold in range(2):
    loader = Loader()
    for epoch in range(2):
        train_on(loader)
""",
    "once for each fold, with the epochs in a function": """
def train(loader):
    for epoch in range(2):
        for batch in loader:
            pass

for fold in range(2):
    train(Loader())
""",
    "a single epoch": """
for batch in Loader():
    pass
""",
    "by an earlier call of the same function": """
kept = {}

def build():
    kept["loader"] = Loader()

def train():
    train_on(kept["loader"])

def call(function):
    function()

call(build)
for epoch in range(2):
    call(train)
""",
    "kept by a decorator": """
import functools

@functools.lru_cache
def make():
    return Loader()

for epoch in range(2):
    train_on(make())
""",
    "after an early return": """
made = {}

def make():
    if "a" in made:
        return made["a"]
    made["a"] = Loader()
    return made["a"]

for epoch in range(2):
    train_on(make())
""",
    "in an expression": """
loader = None
for epoch in range(2):
    loader = loader or Loader()
    train_on(loader)
""",
    "after a round without": """
for epoch in range(2):
    if epoch > 0:
        train_on(loader)
        continue
    loader = Loader()
    train_on(loader)
""",
    "in a loop of its own": """
loader = None
for epoch in range(2):
    while loader is None:
        loader = Loader()
    train_on(loader)
""",
    "looked at while built": """
loaders = {}
for name in ("train", "val"):
    loaders[name] = Loader()
    next(iter(loaders[name]))
for epoch in range(2):
    train_on(loaders["train"])
""",
    "for each fold, with epochs in a comprehension": """
for fold in range(2):
    loader = Loader()
    [train_on(loader) for _ in range(2)]
""",
    "for each fold, with epochs in a lambda": """
for fold in range(2):
    loader = Loader()
    list(map(lambda _: train_on(loader), range(2)))
""",
    "for each fold, by steps": """
for fold in range(2):
    loader = Loader()
    source = iter(loader)
    for step in range(4):
        try:
            next(source)
        except StopIteration:
            source = iter(loader)
""",
    "under a condition": """
loader = None
for epoch in range(2):
    if loader is None:
        loader = Loader()
    train_on(loader)
""",
    "under a condition in a function": """
made = []

def make():
    if not made:
        made.append(Loader())
    return made[0]

for epoch in range(2):
    train_on(make())
""",
    "again after an error": """
loader = Loader()
for epoch in range(2):
    try:
        train_on(loader)
    except OSError:
        loader = Loader()
""",
    "in a generator over epochs": """
def cycle(loader):
    while True:
        yield from loader

source = cycle(Loader())
for step in range(4):
    next(source)
""",
}


def answers_of(path: Path, source: str) -> set[bool]:
    path.write_text(PRELUDE + source)
    answers: list[bool] = []
    scope = {
        "__name__": "__main__",
        "answers": answers,
        "running_calls": running_calls,
        "builds_each_round": builds_each_round,
    }
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return set(answers)


@pytest.mark.parametrize("source", REBUILT.values(), ids=REBUILT)
def test_a_loader_built_in_the_loop_around_its_iteration_is_rebuilt(tmp_path: Path, source: str) -> None:
    assert answers_of(tmp_path / "train.py", source) == {True}


@pytest.mark.parametrize("source", KEPT.values(), ids=KEPT)
def test_a_loader_that_may_serve_several_epochs_is_not(tmp_path: Path, source: str) -> None:
    assert answers_of(tmp_path / "train.py", source) == {False}


def test_a_package_with_an_unknown_loop_tells_nothing(tmp_path: Path) -> None:
    """A framework may have asked for the first iteration before its loop over epochs."""
    for package, expected in (("framework", False), ("tqdm", True)):
        folder = tmp_path / "site-packages" / package
        folder.mkdir(parents=True)
        (folder / "loop.py").write_text("def fit(loader):\n    for batch in loader:\n        yield batch\n")
        fit: dict[str, object] = {}
        exec(compile((folder / "loop.py").read_text(), str(folder / "loop.py"), "exec"), fit)
        source = "for fold in range(2):\n    for batch in fit(Loader()):\n        pass\n"
        path = tmp_path / f"{package}.py"
        path.write_text(PRELUDE + source)
        answers: list[bool] = []
        scope = {
            "answers": answers,
            "running_calls": running_calls,
            "builds_each_round": builds_each_round,
            "fit": fit["fit"],
        }
        exec(compile(path.read_text(), str(path), "exec"), scope)
        assert answers == [expected, expected]


def test_without_a_source_nothing_is_told() -> None:
    answers: list[bool] = []
    scope = {"answers": answers, "running_calls": running_calls, "builds_each_round": builds_each_round}
    exec(compile(PRELUDE + REBUILT["named"], "/nowhere/train.py", "exec"), scope)
    assert answers == [False, False]


def test_a_watched_loader_can_be_pickled(tmp_path: Path) -> None:
    """Scripts save their loaders, and hand them to processes that they spawn."""
    loaders = Loaders()
    loaders.looks_at_source = True
    with recorded() as seams:
        loaders.install()
    try:
        loader = DataLoader(TensorDataset(torch.zeros(4, 2)), batch_size=2)
        for _ in loader:
            pass
        assert len(pickle.loads(pickle.dumps(loader))) == 2
    finally:
        unwrap(seams)
