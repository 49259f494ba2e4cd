"""Prints what a script may look at of its main module, its streams and its process."""

import gc
import inspect
import os
import signal
import sys

import pretend
import torch


def own(number):
    return number + 1


print(own(torch.ones(2)).sum().item(), sorted(globals()), type(__loader__).__name__, __spec__ and __spec__.name)
print(sys.modules["__main__"].__dict__ is globals(), sys.argv, [os.path.basename(word) for word in sys.orig_argv])
print(inspect.getsource(own), inspect.getmodule(own).__name__)
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.fileno())
print(sys.flags, sys.warnoptions, sys._xoptions, sys.stdin.read() == "", sys.stdout.isatty())
print([signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)])
from torch._inductor.runtime.runtime_utils import cache_dir  # noqa: E402

print(cache_dir().startswith(os.environ["TMPDIR"]), os.environ["TORCHINDUCTOR_CACHE_DIR"] == cache_dir())
print(gc.isenabled(), gc.get_threshold(), any(found is torch for found in gc.get_objects()))
pretend.report()
