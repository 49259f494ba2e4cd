"""Lines to write into a script that applies settings itself, in place of our patches."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.settings import Group

LINES: tuple[tuple[str, frozenset[Group]], ...] = (
    ("model = cfg.prepare(model)", frozenset({Group.MEMORY, Group.KERNELS, Group.THREADS})),
    ("loader = DataLoader(data, shuffle=True, **cfg.loader_kwargs())", frozenset({Group.LOADER, Group.BATCH})),
    ("loader = cfg.on_device(loader, device)", frozenset({Group.TRANSFER})),
    ("for x, y in autotune.micro_batches(loader):", frozenset({Group.BATCH})),
    ("    with cfg.autocast():", frozenset({Group.PRECISION})),
    ("        loss = ...", frozenset({Group.PRECISION})),
    (
        "    cfg.backward(loss, optimizer)  # in place of backward, step and zero_grad",
        frozenset({Group.BATCH, Group.PRECISION}),
    ),
)
"""Lines in the order of a script, each with the groups that need the line."""


def own_lines(groups: Iterable[Group], config: str) -> tuple[str, ...]:
    """Lines for a script that applies these groups of settings itself, in order.

    Args:
        groups: Groups for the script to apply.
        config: File name of the tuned config.
    """
    wanted = frozenset(groups)
    lines = (line for line, needed_by in LINES if needed_by & wanted)
    return ("import autotune", f'cfg = autotune.load("{config}")', *lines)
