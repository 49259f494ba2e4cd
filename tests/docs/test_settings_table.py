from __future__ import annotations

from autotune.settings import SETTINGS
from tests.docs.settings_table import README, table, with_table


def test_the_readmes_table_of_settings_is_the_registrys() -> None:
    text = README.read_text()
    assert with_table(text) == text, "python -m tests.docs.settings_table writes it anew"


def test_every_setting_has_a_row() -> None:
    rows = [line.split("|")[1].strip() for line in table().splitlines()[2:]]
    assert rows == [f"`{setting.name}`" for setting in SETTINGS]
