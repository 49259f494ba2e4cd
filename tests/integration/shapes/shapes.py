"""All the shapes, from the plainest on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.shapes import loops
from tests.integration.shapes.shape import (
    ACCUMULATION,
    FINDS,
    OVERRIDES,
    PRECISION,
    SAMPLES,
    TORCHRUN,
    Shape,
)
from tests.integration.trial import loops as older
from tests.integration.trial.ground import SCRIPTS as OLDER_SCRIPTS

SCRIPTS = Path(__file__).parent / "scripts"
TABLE = "".join(f"{n % 7},{n % 5},{n % 3},{n % 2},{n % 3}\n" for n in range(136))
"""Data that a script reads from a path relative to its working directory."""
REPEATED = "every worker would read all of"
NO_LOADER = "no torch DataLoader was seen to train"
WITHOUT_LOADER = {
    FINDS: NO_LOADER,
    OVERRIDES: NO_LOADER,
    SAMPLES: "--samples-per-step",
    ACCUMULATION: "not known from a torch DataLoader",
}


def loop(name: str, text: str, **values: Any) -> Shape:
    """One plain script around one loop, without `if __name__`."""
    for placeholder, value in values.pop("with_", {}).items():
        text = text.replace(placeholder, repr(value))
    return Shape(name=name, sources={"train.py": older.PRELUDE + text + '\nprint("THE END")\n'}, **values)


def file(name: str, path: Path, **values: Any) -> Shape:
    """A script that is a file of its own."""
    return Shape(name=name, sources={"train.py": path}, **values)


LOADERS = (
    loop("one plain loop", older.PLAIN, is_core=True),
    loop("training and validation from one helper", older.HELPER, is_core=True),
    loop("validation between epochs", older.VALIDATES),
    loop("a loader per epoch", older.PER_EPOCH),
    loop("a dataset and a loader per epoch", older.DATASET_PER_EPOCH),
    loop("a loader inside a library", older.LIBRARY),
    loop("a subclass of the loader", older.SUBCLASS),
    loop("a stream without workers", older.ITERABLE, with_={"WORKERS": 0, "LENGTH": 4000}, num_samples=None,
         changes={"num_workers": 2}),
    loop("a stream with workers", older.ITERABLE, with_={"WORKERS": 1, "LENGTH": 4000}, num_samples=None,
         changes={"num_workers": 2}),
    loop("a stream where time comes first", loops.STREAM_WHERE_TIME_COMES_FIRST, num_samples=None,
         refused={OVERRIDES: REPEATED}),
    loop("time comes first", loops.TIME_COMES_FIRST),
    loop("a sampler of its own", loops.OWN_SAMPLER),
    loop("torch's batch sampler", loops.TORCHS_BATCH_SAMPLER),
    loop("a batch sampler of its own", older.BATCH_SAMPLER, refused={ACCUMULATION: "a batch sampler of its own"}),
    loop("nested batches", older.NESTED_IN_PLACE, is_core=True),
    loop("a loader without batching", older.NO_BATCHING, refused={ACCUMULATION: "the loader does not batch"}),
    loop("no loader", loops.GET_BATCH, is_core=True, num_samples=None, samples_per_step=1.0, refused=WITHOUT_LOADER),
    loop("two loaders side by side", older.TWO_LOADERS, num_samples=96,
         refused=dict.fromkeys((SAMPLES, ACCUMULATION), "several loaders train side by side")),
    loop("a loader read in a thread", older.IN_A_THREAD, with_={"EPOCHS": 10000}, num_read_ahead=3),
)  # fmt: skip

STEPS = (
    loop("its own autocast", loops.OWN_AUTOCAST, changes={"precision": "fp32"}, refused={PRECISION: "by itself"}),
    loop("its own scaler", loops.OWN_SCALER, is_core=True, refused={PRECISION: "its own GradScaler"}),
    loop("mixed precision switched off", loops.MIXED_PRECISION_SWITCHED_OFF),
    loop("its own accumulation", older.OWN_ACCUMULATION, samples_per_step=24.0,
         refused={ACCUMULATION: "accumulates by itself, 3 micro-batches"}),
    loop("its own compilation", loops.OWN_COMPILE),
    loop("clipping and a schedule per step", loops.CLIPS_AND_SCHEDULES, is_core=True),
    loop("a schedule of the loader's length", loops.SCHEDULE_OF_THE_LOADERS_LENGTH,
         refused={ACCUMULATION: "takes its length from the loader's"}),
    loop("a closure", older.CLOSURE, refused={ACCUMULATION: "with a closure"}),
    loop("two optimizers", older.GAN, refused={ACCUMULATION: "the script steps 2 optimizers"}),
    loop("an update by hand", older.BY_HAND, refused={ACCUMULATION: "updates its parameters by hand"}),
    loop("two backward passes", older.TWO_BACKWARDS, refused={ACCUMULATION: "2 backward passes"}),
    loop("a summed loss", loops.SUMMED_LOSS),
    loop("a mean over tokens", loops.TOKENS_AGAIN_AND_AGAIN, refused={ACCUMULATION: "a mean over targets"}),
    loop("convolutions", loops.CONVOLUTIONS),
    loop("batch norm", loops.BATCH_NORM, refused={ACCUMULATION: "1 BatchNorm layers"}),
)  # fmt: skip

SURROUNDINGS = (
    Shape(
        name="a module with relative imports",
        sources={
            "package/__init__.py": "",
            "package/data.py": SCRIPTS / "package" / "data.py",
            "package/train.py": SCRIPTS / "package" / "train.py",
            "data/table.csv": TABLE,
        },
        launcher=("-m",),
        script="package.train",
        arguments=("data/table.csv", "-b", "8", "--epochs", "100000"),
        is_core=True,
    ),
    Shape(
        name="writes while it trains",
        sources={
            "train.py": older.PRELUDE + loops.WRITES_WHILE_IT_TRAINS,
            "checkpoint.pt": "precious",
            "train.log": "older\n",
            "runs/0/notes.txt": "mine\n",
        },
        is_core=True,
    ),
    loop("asks for the terminal's size", loops.ASKS_THE_TERMINAL),
    loop("changes directory", loops.CHANGES_DIRECTORY),
    loop("catches everything", loops.CATCHES_EVERYTHING),
    loop("handles signals", loops.HANDLES_SIGNALS),
    file("guarded processes by spawn", SCRIPTS / "spawns_workers.py", needs_a_cold_start=True),
    loop("unguarded processes by spawn", loops.UNGUARDED_SPAWN, needs_a_cold_start=True,
         refused={OVERRIDES: "has no `if __name__ == \"__main__\"`"}),
)  # fmt: skip

RANKS = (
    file(
        "two ranks of torchrun",
        OLDER_SCRIPTS / "ddp.py",
        launcher=(*TORCHRUN, "--nproc_per_node=2"),
        num_processes=2,
        num_samples=512,
        samples_per_step=16.0,
    ),
    file(
        "two ranks of mp.spawn",
        OLDER_SCRIPTS / "ddp.py",
        arguments=("--spawn", "2"),
        num_samples=512,
        samples_per_step=16.0,
        needs_a_cold_start=True,
    ),
)

LIGHTNING_CLI = {"needs": ("lightning", "jsonargparse"), "refused": {ACCUMULATION: "with a closure"}}
FRAMEWORKS = (
    file(
        "Lightning's Trainer",
        SCRIPTS / "lightning_trainer.py",
        needs=("lightning",),
        refused={ACCUMULATION: "with a closure"},
    ),
    file("LightningCLI and a data module", SCRIPTS / "lightning_cli.py", **LIGHTNING_CLI),
    file(
        "two ranks that Lightning starts",
        SCRIPTS / "lightning_cli.py",
        arguments=("--trainer.strategy=ddp", "--trainer.devices=2"),
        samples_per_step=16.0,
        needs_a_cold_start=True,
        **LIGHTNING_CLI,
    ),
    file(
        "Hugging Face's Trainer",
        SCRIPTS / "hugging_face_trainer.py",
        needs=("transformers",),
        refused={ACCUMULATION: "takes its length from the loader's"},
    ),
    file("Accelerate", SCRIPTS / "accelerated.py", needs=("accelerate",)),
)

SHAPES = (*LOADERS, *STEPS, *SURROUNDINGS, *RANKS, *FRAMEWORKS)
