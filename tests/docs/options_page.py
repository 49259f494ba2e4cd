"""Writes docs/options.md from the table of options: `python -m tests.docs.options_page`."""

from __future__ import annotations

from pathlib import Path

from autotune.study_file.search_options import OPTIONS, Kind, SearchOption

PAGE = Path(__file__).parents[2] / "docs" / "options.md"
HEAD = """\
# The options of a search

Written by `make options` from `autotune/study_file/search_options.py`. A flag wins over the variable, the variable over
the study file, and the study file over the default. `autotune config show --origin` names the source of each value.

A study file is `study.toml` in the working directory, or `[tool.autotune]` in `pyproject.toml`. Its keys are also the
parameters of `autotune.search`. A switch is `true` or `false`; a variable may say `1` or `yes` for `true`.

    script = "train.py"
    args = ["--data", "photos"]
    memory_cap = "16GiB"
    time = "10m"
    set = { num_workers = "0..8", precision = ["fp32", "bf16"] }
    fix = { pin_memory = true }

| command line | study file, Python | variable | default | what it says | also of |
| --- | --- | --- | --- | --- | --- |
"""
FOOT = """
"Also of" names the other commands with the flag. `record` takes the values, the order and the name of its grid from
`--set`, `--fix`, `--seed` and `--study`. `autotune COMMAND --help` lists all flags of a command.
"""


def row(option: SearchOption) -> str:
    """The line of the table about one option."""
    typed = option.flag if option.without_flag or option.metavar is None else f"{option.flag} {option.metavar}"
    keys = f"`{option.name}`" if option.is_key else f"Python only: `{option.name}`"
    default = option.default or option.unsaid or ("false" if option.kind is Kind.SWITCH else "")
    cells = (
        f"`{option.short}`, `{typed}`" if option.short else f"`{typed}`",
        keys if option.in_python else f"file only: `{option.name}`",
        f"`{option.variable}`" if option.variable else "",
        default,
        option.help,
        ", ".join(f"`{verb}`" for verb in option.verbs if verb != "search"),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"{row(option)}\n" for option in OPTIONS) + FOOT


if __name__ == "__main__":
    PAGE.write_text(page())
