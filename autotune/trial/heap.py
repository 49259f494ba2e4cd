"""The garbage collector of a forked trial does what it does for the script alone.

A server freezes its heap before it forks, so that no child's collector touches, and thereby copies, what all share.
Left frozen, a trial's collections would have next to nothing to walk through: where every batch is put together of
thousands of small objects, they take a fifth of the script's own time, and the trial would look that much too fast.
"""

from __future__ import annotations

import gc


def freeze() -> bool:
    """Freezes all there is, before trials are forked; whether they are to thaw it: it undoes what the script froze."""
    is_ours = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    return is_ours


def settle() -> None:
    """Collects once, before the clock counts: the first time copies whatever pages a trial still shares.

    A script that has switched the collector off is left alone.
    """
    if gc.isenabled():
        gc.collect()
