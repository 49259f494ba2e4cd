"""Engines of Keras, by the imports in the script's own files."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from autotune.trial.user_frames import is_users

PACKAGES = {
    "tensorflow": "tensorflow",
    "tf": "tensorflow",
    "jax": "jax",
    "jaxlib": "jax",
    "flax": "jax",
    "torch": "torch",
}
PACKAGE_FOLDERS = ("site-packages", "dist-packages")


def script_engines() -> tuple[str, ...]:
    """Sorted names of the engines; imports within a function or under a condition count too."""
    found: set[str] = set()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or not is_users(path):
            continue
        if not any(folder in path for folder in PACKAGE_FOLDERS):
            found |= engines_named(path)
    return tuple(sorted(found))


def engines_named(path: str) -> set[str]:
    """Engines imported by a file; empty for an unreadable file."""
    try:
        tree = ast.parse(Path(path).read_text(errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return {PACKAGES[name.partition(".")[0]] for name in names if name.partition(".")[0] in PACKAGES}
