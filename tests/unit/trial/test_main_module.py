from __future__ import annotations

import pytest

from autotune.trial.probe.main_module import has_guard

WORK = "import torch\nfor x in range(3):\n    print(x)\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (WORK, False),
        ("def main(): ...\nmain()\n", False),
        ("def main(): ...\nif __name__ == '__main__':\n    main()\n", True),
        ("import sys\nif '__main__' == __name__ and sys.argv:\n    pass\n", True),
        ("def inner():\n    if __name__ == '__main__':\n        pass\ninner()\n", False),
        ("print(__name__)\n", False),
        ("not python(", True),
    ],
)
def test_a_script_is_guarded_where_its_work_depends_on_its_name(source: str, expected: bool) -> None:
    assert has_guard(source) is expected
