"""Messages between the tuner and the parents of forked trials. Standard library only."""

from __future__ import annotations

from typing import NamedTuple

from autotune.protocol.supervision import LayerPlan

HOME = b"home"
"""Message with a descriptor of the system's mount namespace, the place of the supervisors of forked trials."""
FORKED = b"forked"
"""Message with a descriptor of the new supervisor's process: process ids differ between namespaces."""


GO_ON = b"go on"
"""Message to a fork server: the further imports are known, and lie in the server's folder."""
FURTHER_IMPORTS = "imports.json"
"""File in a fork server's folder with the further imports; they may be too many for a message."""


class ForkServerSpec(NamedTuple):
    """Surroundings and first imports of a fork server."""

    folder: str
    """Folder of the server; the server removes the folder at the end."""
    layers: LayerPlan | None
    """Copy-on-write layers of the server; None without layers."""
    writable: tuple[str, ...] | None
    """Places open to writes of the server and the trials under Landlock; None without Landlock."""
    imports: tuple[str, ...]
    """Modules to import at once, after torch."""
    own_modules: tuple[str, ...]
    """Names of the modules in the script's folder."""


class ForkServerImports(NamedTuple):
    """The further imports of a fork server."""

    modules: tuple[str, ...]
    """Modules to import."""


class ForkServerHello(NamedTuple):
    """First message of a fork server, after its imports."""

    reason: str = ""
    """Why no trial can be forked from the server; empty when trials can be."""
    import_s: float = 0.0
    """Seconds that the imports took."""
    has_imported: bool = False
    """Whether the imports came to their end."""


class PreludeHello(NamedTuple):
    """First message of a script at the first place where settings matter."""

    reason: str
    """Why no trial can be forked there; empty when trials can be."""
    place: str
    """The place, for people: file, line, and the call that settings may change."""
    prepared_s: float
    """Seconds from the script's first import of torch to the place."""
    asks_for_threads: bool
    """Whether the script has asked for the number of threads on its way."""
