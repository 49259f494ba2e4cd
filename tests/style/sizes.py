"""The size of each room: files, lines, and how long functions are.

    python -m tests.style.sizes            # a table in Markdown, the largest room first

Lengths of functions count the docstring. Long functions are mostly long lists: parameters of a verb with their help,
fields of a result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "autotune"


@dataclass
class Size:
    """The size of some files."""

    num_files: int = 0
    num_lines: int = 0
    functions: list[int] = field(default_factory=list)
    """Lines of each function."""

    def add(self, source: str) -> None:
        """Adds a file."""
        self.num_files += 1
        self.num_lines += len(source.splitlines())
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.append((node.end_lineno or node.lineno) - node.lineno + 1)

    def quantile(self, share: float) -> int:
        """Lines that this share of the functions does not exceed; 0 without functions."""
        lengths = sorted(self.functions)
        return lengths[min(len(lengths) - 1, int(share * len(lengths)))] if lengths else 0


def sizes(package: Path) -> dict[str, Size]:
    """The size of every room of a package, and of all rooms together under `total`, the largest first."""
    found: dict[str, Size] = {}
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        room = inside.parts[0] if len(inside.parts) > 1 else inside.stem
        for name in (room, "total"):
            found.setdefault(name, Size()).add(path.read_text())
    return dict(sorted(found.items(), key=lambda item: -item[1].num_lines))


def table(found: dict[str, Size]) -> Iterator[str]:
    """Lines of a table."""
    yield "| room | files | lines | functions | median | p90 | longest |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, size in found.items():
        lengths = " | ".join(str(size.quantile(share)) for share in (0.5, 0.9, 1.0))
        yield f"| `{name}` | {size.num_files} | {size.num_lines:,} | {len(size.functions):,} | {lengths} |"


if __name__ == "__main__":
    print("\n".join(table(sizes(PACKAGE))))
