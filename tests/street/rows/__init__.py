"""The table of public training scripts."""

from __future__ import annotations

from tests.street.rows import examples, first
from tests.street.script import Script

SCRIPTS: tuple[Script, ...] = (*first.SCRIPTS, *examples.SCRIPTS)
"""All rows, the most telling ones first."""
