"""The table of sizes counts files, lines and functions by room."""

from __future__ import annotations

from pathlib import Path

from tests.style.sizes import sizes, table


def test_rooms_are_counted_by_folder_or_file(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a.py").write_text(
        "def one():\n    return 1\n\n\nclass A:\n    def two(self):\n        pass\n"
    )
    (tmp_path / "store" / "b.py").write_text("async def three():\n    x = 1\n    return x\n")
    (tmp_path / "units.py").write_text("KIB = 1024\n")
    found = sizes(tmp_path)
    assert list(found) == ["total", "store", "units"]
    assert (found["total"].num_files, found["total"].num_lines) == (3, 11)
    assert [found["store"].quantile(share) for share in (0.0, 0.5, 1.0)] == [2, 2, 3]
    assert list(table(found))[-1] == "| `units` | 1 | 1 | 0 | 0 | 0 | 0 |"
