"""Scripts as people write them: each feature works on each of them, or is refused by name before the first trial."""

from __future__ import annotations

import pytest

from tests.integration.shapes.ground import Ground
from tests.integration.shapes.shape import FEATURES, Shape
from tests.integration.shapes.shapes import SHAPES
from tests.integration.shapes.verdicts import PASSED, verdicts

TABLE: dict[str, dict[str, str]] = {}
"""By shape and feature, what came of it: printed at the end of the session."""


def test_no_two_shapes_share_a_name_or_a_folder() -> None:
    assert len({shape.name for shape in SHAPES}) == len({shape.folder for shape in SHAPES}) == len(SHAPES)


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, id=shape.name, marks=[] if shape.is_core else [pytest.mark.slow]) for shape in SHAPES],
)
def test_every_feature_passes_or_is_refused_by_name(ground: Ground, shape: Shape) -> None:
    for library in shape.needs:
        pytest.importorskip(library, reason=f"{library} is not installed: make test-all installs it")
    seen = ground.see(shape)
    cells = TABLE[shape.name] = verdicts(shape, seen)
    assert seen.changed_files == ()
    wrong = {
        feature: cells[feature]
        for feature in FEATURES
        if not (
            shape.refused[feature] in cells[feature] and cells[feature].startswith("refused: ")
            if feature in shape.refused
            else cells[feature] == PASSED
        )
    }
    assert wrong == {}
