"""`autotune config show`: the options of a search, with the source of each value."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import Flags, Json
from autotune.cli.place import working_directory
from autotune.cli.search_verb import search
from autotune.cli.tail import TailCommand, tail_of
from autotune.study_file.search_options import BY_NAME, KEYS, OPTIONS, VARIABLES, flag_of

if TYPE_CHECKING:
    from autotune.study_file.resolve import Resolved

SCHEMA = 1
EXAMPLES = """\b
Examples:
  autotune config show --origin
  autotune config show --origin train.py --memory-cap 16GiB -- --data photos
"""
DEFAULTS = {option.name: option.unsaid for option in OPTIONS if option.unsaid}
"""Words for absent values by key, for defaults of more than a single value."""

app = typer.Typer(help="Show what a search would be asked.", rich_markup_mode=None)
_parser = typer.Typer(rich_markup_mode=None, add_completion=False)
_parser.command(cls=TailCommand)(search)


@app.command(
    "show",
    cls=TailCommand,
    epilog=EXAMPLES,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def show(
    context: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    as_json: Json = False,
) -> int:
    """Show the options of a search, from flags, variables, study file and defaults.

    Takes SCRIPT and all options of `autotune search`, and starts nothing. --origin adds the option, the variable or the
    file behind each value.
    """
    from autotune.report.document import write_document
    from autotune.report.status_text import table_text
    from autotune.report.streams import write_result
    from autotune.study_file.resolve import resolve

    cwd = working_directory()
    asked = resolve(_flags(context), tail_of(context), environ=os.environ, cwd=cwd)
    rows = [("command", shlex.join(_command(asked)), _where_command(asked))]
    rows += [(key, _words(asked, key), _where(asked, key)) for key in sorted(asked.origins, key=_position)]
    if as_json:
        write_document(_document(asked))
    else:
        width = 3 if origin else 2
        write_result(table_text(("KEY", "VALUE", "FROM")[:width], [row[:width] for row in rows]))
    return 0


def _flags(context: typer.Context) -> Flags:
    """The flags of a search, read by the parser of `autotune search`."""
    with typer.main.get_command(_parser).make_context(context.command_path, list(context.args)) as inner:
        return Flags((name, value) for name, value in inner.params.items() if name in BY_NAME)


def _command(asked: Resolved) -> tuple[str, ...]:
    from autotune.store.secrets import masked_command

    return masked_command(asked.spec)


def _value(asked: Resolved, key: str) -> Any:
    """The value in force as plain data, with secrets masked."""
    from autotune.store.secrets import mask_arguments, mask_plain
    from autotune.store.url import mask_url

    if key == "storage":
        return mask_url(asked.spec.storage)
    if key in asked.values:
        value = asked.values[key]
        return list(mask_arguments(value)) if key in ("args", "command") else mask_plain(value)
    spec_field = BY_NAME[key].spec_field
    return getattr(asked.spec, spec_field) if spec_field is not None else None


def _words(asked: Resolved, key: str) -> str:
    from autotune.settings import text_of
    from autotune.units import format_seconds

    value = _value(asked, key)
    if key not in asked.values and key in DEFAULTS:
        return DEFAULTS[key]
    if key == "time":
        return format_seconds(value)
    if isinstance(value, list):
        return shlex.join(map(str, value))
    return text_of(value)


def _where_command(asked: Resolved) -> str:
    named = next((key for key in ("script", "module", "command") if key in asked.origins), None)
    return _where(asked, named) if named is not None else "after --"


def _where(asked: Resolved, key: str) -> str:
    """The option, the variable or the file behind the value of a key."""
    from autotune.study_file.sources import Origin

    match asked.origins[key]:
        case Origin.FLAG:
            return flag_of(key)
        case Origin.ENVIRONMENT:
            return VARIABLES[key]
        case Origin.FILE:
            folder = working_directory()
            path = asked.file.path if asked.file is not None else folder
            return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
        case Origin.DEFAULT:
            return "default"


def _position(key: str) -> tuple[int, str]:
    return KEYS.index(key.partition(".")[0]), key


def _document(asked: Resolved) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "command": list(_command(asked)),
        "file": str(asked.file.path) if asked.file is not None else None,
        "values": {
            key: {"value": _value(asked, key), "origin": origin.value, "where": _where(asked, key)}
            for key, origin in sorted(asked.origins.items(), key=lambda entry: _position(entry[0]))
        },
    }
