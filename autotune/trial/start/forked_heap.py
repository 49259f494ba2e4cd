"""Gives a forked trial the garbage collections of an unforked script.

A server freezes the heap before forks, so that no child's collector touches, and thereby copies, shared pages. With a
frozen heap, a trial's collections would find next to nothing to walk. For scripts that build each batch from thousands
of small objects, collections take a fifth of the script's time, and the trial would look too fast by a fifth.
"""

from __future__ import annotations

import gc
import os

NUM_FROZEN_AT_START = gc.get_freeze_count()
"""Objects frozen by the interpreter: some hundred in Python 3.12."""
_shares_heap = False
"""Whether this process is a trial and still shares the server's heap."""


def freeze() -> bool:
    """Freezes the heap before forks; False when the script has frozen objects already.

    The script's frozen objects could not be told from the server's afterwards, so nothing is added then.
    """
    gc.collect()
    if gc.get_freeze_count() > NUM_FROZEN_AT_START:
        return False
    gc.freeze()
    return True


def thaw() -> None:
    """Unfreezes the heap in the trial, and has the first collection come before the first fork."""
    global _shares_heap
    gc.unfreeze()
    _shares_heap = True
    os.register_at_fork(before=settle)


def settle() -> None:
    """Collects once in a thawed trial, and thereby copies the shared pages with objects.

    To be called before the measurement. Forks call this function, because workers of a loader would go on to share the
    old pages with the server, and the heap would count twice. Does nothing while the script has the collector off.
    """
    global _shares_heap
    if _shares_heap and gc.isenabled():
        _shares_heap = False
        gc.collect()
