"""Lines and parts of lines laid out for a terminal of so many columns. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

GAP = "  "
LEAST_WIDTH = 20
"""Nothing is made to fit a terminal that is narrower."""


def fold(line: str, width: int, *, column: int = 0, indent: int = 4) -> list[str]:
    """A line in as many as it takes, broken between words; one that fits stays as it is.

    Args:
        line: The line.
        width: Columns of the terminal.
        column: Where it may be broken first, whether or not the next word would still fit; 0 = anywhere.
        indent: Blanks before all lines but the first.
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
    """Parts side by side, in as many lines as it takes; a part that is wider than the terminal is cut."""
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
    """A share of 0 to 1 as a bar: `[####----]`, so many columns between its brackets."""
    filled = round(max(0.0, min(1.0, share)) * width)
    return f"[{'#' * filled}{'-' * (width - filled)}]"
