"""One row of the matrix for a script of somebody else's, in the folder in which it is started.

    python -m tests.integration.shapes --samples 64 --of 6000 FOLDER main.py --epochs 3

What the script needs must be there, and importable; what its trials write goes to layers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from autotune.sandbox.tree_removal import remove_tree
from tests.integration.shapes.ground import LIMIT_S, WINDOW_S, Ground
from tests.integration.shapes.shape import FEATURES, TORCHRUN, Shape
from tests.integration.shapes.verdicts import verdicts


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says; None = that of this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=float, default=1.0, help="of one optimizer step; 1 where steps are counted")
    parser.add_argument("--of", type=int, help="samples of the dataset; left out where it has no length")
    parser.add_argument("--processes", type=int, default=1, help="that torchrun is to start")
    parser.add_argument("--window", type=float, default=WINDOW_S, help="seconds that a trial measures at most")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a trial takes at most")
    parser.add_argument("folder", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if not 0 < options.window < options.limit:
        parser.error(f"a window of {options.window:g} s does not fit into a limit of {options.limit:g} s")
    return options


def main() -> None:
    """Prints by feature what came of the script."""
    options = options_of()
    shape = Shape(
        name=options.script,
        sources={},
        script=options.script,
        arguments=tuple(options.arguments),
        launcher=(*TORCHRUN, f"--nproc_per_node={options.processes}") if options.processes > 1 else (),
        num_processes=options.processes,
        num_samples=options.of,
        samples_per_step=options.samples,
        needs_a_cold_start=True,
    )
    root = Path(tempfile.mkdtemp(prefix="shapes-")).resolve()
    ground = Ground(root, user=options.folder.resolve(), window_s=options.window, limit_s=options.limit)
    try:
        seen = ground.see_in(ground.user, shape)
    finally:
        ground.close()
        remove_tree(root)
    cells = verdicts(shape, seen)
    for feature in FEATURES:
        print(f"{feature}: {cells[feature]}")
    print(f"asked for: {seen.asked and seen.space and sorted(seen.asked.differences(seen.space.script_settings))}")
    print(f"files changed: {list(seen.changed_files)}")


if __name__ == "__main__":
    main()
