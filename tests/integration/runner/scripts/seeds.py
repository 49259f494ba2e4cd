"""Draws random numbers before and after torch is imported; with the word `itself` it seeds all generators first."""

import json
import random
import sys

import numpy
import pretend

IS_SEEDED = sys.argv[1:] == ["itself"]
if IS_SEEDED:
    random.seed(7)
    numpy.random.seed(7)
BEFORE = [random.random(), float(numpy.random.random())]
import torch  # noqa: E402

if IS_SEEDED:
    torch.manual_seed(7)
after = [random.random(), float(numpy.random.random()), float(torch.rand(()))]
print(json.dumps({"drawn": BEFORE + after}))
pretend.report()
