"""What to write into a script that is to apply settings itself: the lines that take the place of our seams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from autotune.settings import Group

_LOADER = "loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())"
_STEP = "cfg.backward(loss, optimizer)  # in place of backward, step and zero_grad"
_PREPARE = "model = cfg.prepare(model)"

LINES: Mapping[Group, tuple[str, ...]] = MappingProxyType(
    {
        Group.LOADER: (_LOADER,),
        Group.BATCH: (_LOADER, "for x, y in autotune.micro_batches(loader):", f"    {_STEP}"),
        Group.PRECISION: ("    with cfg.autocast():", "        loss = ...", f"    {_STEP}"),
        Group.MEMORY: (_PREPARE,),
        Group.KERNELS: (_PREPARE,),
        Group.THREADS: (_PREPARE,),
        Group.TRANSFER: ("    x = x.to(device, non_blocking=cfg.settings.non_blocking)",),
        Group.OWN: (),
    }
)
ORDER = (
    _PREPARE,
    _LOADER,
    "for x, y in autotune.micro_batches(loader):",
    "    x = x.to(device, non_blocking=cfg.settings.non_blocking)",
    "    with cfg.autocast():",
    "        loss = ...",
    f"    {_STEP}",
)
"""Of the lines of all groups, as they follow each other in a script."""


def own_lines(groups: Iterable[Group], config: str) -> tuple[str, ...]:
    """Lines for a script that applies these groups of settings itself, in the order in which it needs them.

    Args:
        groups: What cannot be applied from outside.
        config: File name of the tuned config.
    """
    wanted = {line for group in groups for line in LINES[group]}
    return ("import autotune", f'cfg = autotune.load("{config}")', *(line for line in ORDER if line in wanted))
