"""Lines and parts of lines laid out for a terminal of a given width. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

GAP = "  "
LEAST_WIDTH = 20
"""Narrowest terminal for which lines are folded."""


def fold(line: str, width: int, *, column: int = 0, indent: int = 4) -> list[str]:
    """A line folded into as many lines as necessary, broken between words; a fitting line is unchanged.

    Args:
        line: The line.
        width: Columns of the terminal.
        column: Place of the first break, even if the next word would still fit; 0 = anywhere.
        indent: Blanks before all lines after the first.
    """
    if len(line) <= width:
        return [line]
    head, rest = line[:column].rstrip(), line[column:]
    first = [head] if column else []
    own_indent = " " * (len(rest) - len(rest.lstrip()))
    wrapped = textwrap.wrap(
        rest.lstrip(),
        max(width, LEAST_WIDTH),
        initial_indent=" " * indent if column else own_indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*first, *wrapped]


def flow(parts: Sequence[Text], width: int) -> list[Text]:
    """Parts side by side, in as many lines as necessary; a part wider than the terminal is cut."""
    lines: list[Text] = []
    for part in parts:
        if lines and len(lines[-1]) + len(GAP) + len(part) <= width:
            lines[-1].append(GAP).append_text(part)
        else:
            lines.append(part.copy())
    for line in lines:
        line.truncate(max(width, LEAST_WIDTH), overflow="crop")
    return lines


def bar(share: float, width: int) -> str:
    """A share of 0 to 1 as a bar of `width` columns between brackets: `[####----]`."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return f"[{'#' * filled}{'-' * (width - filled)}]"
