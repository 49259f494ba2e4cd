"""Protection of the user's files: as asked for by a search, as in force in its trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.model.result import TrialResult
from autotune.protocol.protection import Protection, ProtectionWish
from autotune.spec import SearchSpec
from autotune.store.secrets import mask_text

MAX_NAMED = 5


def wish_of(spec: SearchSpec) -> ProtectionWish:
    """The user's wish for the protection of files."""
    return ProtectionWish(
        mode=spec.protection,
        is_unprotected=spec.unprotected,
        writable=spec.writable,
        keeps_network=spec.network,
    )


def weakest(results: Iterable[TrialResult]) -> str:
    """The weakest protection of runs, a value of Protection; empty = unknown."""
    protections = {result.protection for result in results}
    return next((mode.value for mode in reversed(Protection) if mode in protections), "")


def changed_words(escaped: Sequence[str]) -> str:
    """A sentence without full stop on the files changed while the script ran."""
    num = sum(not path.startswith("(") for path in escaped)
    named = ", ".join(mask_text(path) for path in escaped[:MAX_NAMED])
    more = f" and {len(escaped) - MAX_NAMED} more" if len(escaped) > MAX_NAMED else ""
    files = "file of yours was" if num == 1 else "files of yours were"
    return f"While the script ran, {num} {files} changed or removed, by it or by another program: {named}{more}"
