"""pytorch/examples: all that train."""

from __future__ import annotations

from functools import partial

from tests.street import data
from tests.street.rows.first import EXAMPLES
from tests.street.script import Data, Progress, Script

MNIST = Data(name="mnist", make=data.mnist)
WIKITEXT = Data(
    name="wikitext",
    make=partial(
        data.text, lines=60_000, names=("wikitext-2/train.txt", "wikitext-2/valid.txt", "wikitext-2/test.txt")
    ),
)
MNIST_LINE = r"Train Epoch: (?P<epoch>\d+) \[(?P<at>\d+)/(?P<of>\d+)"

SCRIPTS = (
    Script(
        name="mnist", kind="pytorch/examples", source=EXAMPLES,
        script="main.py", folder="mnist", data=MNIST, links={"data": "."}, packages=("torchvision",),
        arguments={"cpu": "", "gpu": ""},
        no_expert="the script has no argument for workers, pinning or a number format",
        progress=Progress(pattern=MNIST_LINE),
    ),
)  # fmt: skip
