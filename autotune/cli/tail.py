"""The words after `--`: arguments of the user's script, or a whole command."""

from __future__ import annotations

import typer
from typer.core import TyperCommand

_TAIL = "autotune.tail"


class TailCommand(TyperCommand):
    """A verb that hands on the typed words after the first `--`.

    The parser itself would drop the `--`, and `search train.py -- x` could not be told from `search -- train.py x`.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parses what stands before the `--`."""
        if "--" in args:
            position = args.index("--")
            args, ctx.meta[_TAIL] = args[:position], tuple(args[position + 1 :])
        return super().parse_args(ctx, args)


def tail_of(context: typer.Context) -> tuple[str, ...] | None:
    """The words after `--`; None without a `--`."""
    tail: tuple[str, ...] | None = context.meta.get(_TAIL)
    return tail
