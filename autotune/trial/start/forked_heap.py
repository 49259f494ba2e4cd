"""The garbage collector of a forked trial does what it does for the script alone.

A server freezes its heap before it forks, so that no child's collector touches, and thereby copies, what all share.
Left frozen, a trial's collections would have next to nothing to walk through: where every batch is put together of
thousands of small objects, they take a fifth of the script's own time, and the trial would look that much too fast.
"""

from __future__ import annotations

import gc
import os

NUM_FROZEN_AT_START = gc.get_freeze_count()
"""Objects that the interpreter itself has frozen: some hundred in Python 3.12."""
_shares_heap = False
"""Whether this is a trial whose heap is the server's still."""


def freeze() -> bool:
    """Freezes all there is, before trials are forked; whether it did, and they are to thaw it.

    Where the script has frozen something itself nothing is added: nobody could tell the two apart afterwards.
    """
    gc.collect()
    if gc.get_freeze_count() > NUM_FROZEN_AT_START:
        return False
    gc.freeze()
    return True


def thaw() -> None:
    """In the trial: its collections walk through what they would without a server, and the first comes in time."""
    global _shares_heap
    gc.unfreeze()
    _shares_heap = True
    os.register_at_fork(before=settle)


def settle() -> None:
    """Collects once in a trial that was thawed, which copies whatever pages hold objects that it still shares.

    To be called before the clock counts. Before a loader forks its workers it comes by itself: they would go on sharing
    the old pages with the server, and the heap would count twice. While a script has the collector switched off it is
    left alone.
    """
    global _shares_heap
    if _shares_heap and gc.isenabled():
        _shares_heap = False
        gc.collect()
