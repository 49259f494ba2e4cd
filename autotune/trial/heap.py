"""The garbage collector of a forked trial does what it does for the script alone.

A server freezes its heap before it forks, so that no child's collector touches, and thereby copies, what all share.
Left frozen, a trial's collections would have next to nothing to walk through: where every batch is put together of
thousands of small objects, they take a fifth of the script's own time, and the trial would look that much too fast.
"""

from __future__ import annotations

import gc

NUM_FROZEN_AT_START = gc.get_freeze_count()
"""Objects that the interpreter itself has frozen: some hundred in Python 3.12."""


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
    """In the trial: its collections walk through what they would without a server."""
    gc.unfreeze()


def settle() -> None:
    """Collects once, before the clock counts: the first time copies whatever pages a trial still shares.

    A script that has switched the collector off is left alone.
    """
    if gc.isenabled():
        gc.collect()
