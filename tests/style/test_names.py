from __future__ import annotations

from collections import Counter
from pathlib import Path

import autotune


def test_base_names_of_modules_are_unique():
    """A reader finds a module by its base name alone."""
    counts = Counter(path.name for path in Path(autotune.__file__).parent.rglob("*.py"))
    assert [name for name, number in counts.items() if number > 1] == ["__init__.py"]
