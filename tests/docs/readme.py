"""The commands that the README tells people to type, as they stand there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
NAMES = ("autotune run",)
"""Stand in sentences for the verb alone, which needs a script."""
PROGRAMS = ("autotune", "docker", "make", "pip")
_SAMPLE = re.compile(r"<!-- docs/session.txt -->.*?<!-- end of docs/session.txt -->", re.S)
_LINE = re.compile(rf"^    (\S[^\n]*)$|`((?:{'|'.join(PROGRAMS)}) [^`]+)`", re.M)


@dataclass(frozen=True)
class Command:
    """One command."""

    words: str
    heading: str
    """Of the section that it stands in."""

    @property
    def program(self) -> str:
        """Its first word."""
        return self.words.split()[0]


def commands(text: str | None = None) -> list[Command]:
    """All commands in their order, each once: whole lines of indented blocks, and code in a sentence.

    The sample of a session, which is output, is left out, and so are comments at the end of a line.
    """
    found: dict[str, Command] = {}
    text = _SAMPLE.sub("", README.read_text() if text is None else text)
    for section in re.split(r"^(?=## )", text, flags=re.M):
        heading = section.splitlines()[0].lstrip("# ") if section.startswith("## ") else ""
        for line in _LINE.findall(section):
            words = re.sub(r"\s+#.*$", "", " ".join("".join(line).split()))
            if words.split()[0] in PROGRAMS and len(words.split()) > 1 and words not in NAMES:
                found.setdefault(words, Command(words, heading))
    return list(found.values())
