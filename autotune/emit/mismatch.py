"""Whether a tuned config was measured on a machine like this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.emit.tuned_config import TunedConfig
    from autotune.host import HostFingerprint


def mismatches(config: TunedConfig, host: HostFingerprint) -> tuple[str, ...]:
    """Differences between a machine and the measured machine, one sentence each; empty = the figures hold here.

    Fields are compared if known on both sides: neither empty nor 0. The memory must be known.
    """
    return tuple(
        f"This machine differs in {difference} when it was measured."
        for difference in host.differences(config.provenance.host)
    )
