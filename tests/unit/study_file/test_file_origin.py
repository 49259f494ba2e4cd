"""Values of a study file that need the user's agreement."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.study_file.file_origin import FileOrigin
from autotune.study_file.search_options import OPTIONS, Kind, SearchOption

REACHING = {Kind.PATH, Kind.PATHS, Kind.DATABASE, Kind.COMMAND, Kind.WORDS, Kind.PROTECTION}


@pytest.mark.parametrize(
    "option", [each for each in OPTIONS if each.is_key and each.kind in REACHING], ids=lambda each: each.name
)
def test_a_key_for_places_code_or_protection_needs_agreement_to_some_value(
    option: SearchOption, tmp_path: Path
) -> None:
    origin = FileOrigin(tmp_path, script="/elsewhere/train.py")
    assert any(option.leads_outside(value, origin) for value in ("/elsewhere", ["/elsewhere"], "none"))
