"""Run with -m: it imports what lies beside it."""

import sys

import pretend
import torch

from .sibling import VALUE

print(torch.tensor(VALUE).item(), __name__, __package__, __spec__.name, sys.argv[1:], sys.orig_argv[1:])
print(sys.modules["__main__"].__dict__ is globals(), "pkg.train" in sys.modules, sorted(globals()))
pretend.report()
