"""The table of public training scripts."""

from __future__ import annotations

from tests.street.rows import examples, first, keras, language, other, vision
from tests.street.script import Script

SCRIPTS: tuple[Script, ...] = (
    *first.SCRIPTS, *vision.SCRIPTS, *language.SCRIPTS, *other.SCRIPTS, *examples.SCRIPTS,
    *keras.SCRIPTS
)  # fmt: skip
"""All rows, the most telling first."""
