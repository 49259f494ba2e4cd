"""The README's table of settings, from the registry: `python -m tests.docs.settings_table` writes it anew."""

from __future__ import annotations

from pathlib import Path

from autotune.settings import SETTINGS, Setting, text_of

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- settings: written by tests/docs/settings_table.py -->", "<!-- /settings -->"
HEAD = "| setting | values | takes effect in | left alone when | read back |\n| --- | --- | --- | --- | --- |\n"


def table() -> str:
    """One row for each setting, in the order of the registry."""
    return HEAD + "".join(map(row, SETTINGS))


def row(setting: Setting) -> str:
    values = [text_of(value) for value in setting.domain]
    if len(values) > 5:
        values = [values[0], "...", values[-1]]
    seen = "no: only copies that autotune starts are seen" if setting.unseen else "yes"
    cells = (f"`{setting.name}`", " ".join(values) or "by the batch", setting.takes_effect, setting.left_alone, seen)
    return f"| {' | '.join(cells)} |\n"


def with_table(text: str) -> str:
    """The README with the table between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"README.md lacks {BEGIN} or {END}"
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
