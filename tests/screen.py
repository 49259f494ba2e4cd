"""A terminal of the little that rich's live display asks of one: what was written, as a person sees it."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r|\n|[^\x1b\r\n]+")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Screen:
    """All lines that were ever written and not erased, scrolled out or not. Text always goes to a line's end.

    Any movement of the cursor that is not known here raises ValueError.
    """

    def __init__(self) -> None:
        self.lines = [""]
        """With their colours."""
        self._row = 0

    def feed(self, text: str) -> Screen:
        """Takes what a program wrote; whole writes, so that no sequence is cut."""
        for token in _TOKEN.findall(text):
            if token == "\n":
                self._row += 1
                if self._row == len(self.lines):
                    self.lines.append("")
            elif token == "\r" or token in ("\x1b[?25l", "\x1b[?25h"):
                continue  # The start of a line is only ever gone to before it is erased, or left for the next one.
            elif token == "\x1b[2K":
                self.lines[self._row] = ""  # What follows is written here; the lines below are erased as well by now.
            elif re.fullmatch(r"\x1b\[\d*A", token):
                self._row -= int(token[2:-1] or 1)
            elif token.startswith("\x1b") and not _COLOUR.fullmatch(token):
                raise ValueError(f"a movement of the cursor that is not known: {token!r}")
            else:
                self.lines[self._row] += token
        return self

    @property
    def plain(self) -> list[str]:
        """The lines without their colours, and without empty ones at the end."""
        return [_COLOUR.sub("", line).rstrip() for line in "\n".join(self.lines).rstrip().split("\n")]
