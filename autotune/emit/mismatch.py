"""Whether a tuned config was measured on a machine like this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.emit.tuned_config import TunedConfig
    from autotune.host import HostFingerprint


def mismatches(config: TunedConfig, host: HostFingerprint) -> tuple[str, ...]:
    """Sentences on what differs between a machine and the one that was measured; empty when the figures hold here.

    What is empty or 0 on either side is unknown and is not compared, except the memory, which must be known.
    """
    return tuple(
        f"This machine differs in {difference} when it was measured."
        for difference in host.differences(config.provenance.host)
    )
