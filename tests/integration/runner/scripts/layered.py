"""Looks at what earlier runs wrote: its arguments are what it expects in made.txt, and what it writes there.

What it writes it reads again, as a script does with a cache: what a probe only writes is an output, and not handed on.
"""

import os
import sys
from pathlib import Path

import pretend

expected, text = sys.argv[1:]
for place in (Path("made.txt"), Path.home() / "made.txt"):
    found = place.read_text() if place.exists() else "nothing"
    assert found == expected, f"{place} holds {found}"
    place.write_text(text)
    assert place.read_text() == text
    (place.parent / "sub").mkdir(exist_ok=True)
    (place.parent / "sub" / "more.txt").write_text(text)
assert sorted(os.listdir("sub")) == ["deep", "link.txt", "more.txt"]
pretend.report()
