"""`autotune export`: a tuned config in the form of another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.completion_verb import complete_form, complete_study
from autotune.cli.options import Storage
from autotune.cli.place import open_repository, working_directory
from autotune.errors import ConfigError, UsageError
from autotune.study_file.name import study_name

if TYPE_CHECKING:
    from autotune.emit.tuned_config import TunedConfig

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json", ".env": "env"}
EXAMPLES = """\b
Examples:
  autotune export train --to json
  autotune export autotune.yaml --to env --out tuned.env
  set -a; . ./tuned.env; set +a
  autotune export train --to hf --out tuned/trainer.yaml
"""


def export(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY|FILE", autocompletion=complete_study, help="A finished study, or a tuned config."
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORM",
            autocompletion=complete_form,
            help="yaml, toml, json, env, keras-env, hf, lightning, accelerate, deepspeed, hydra. "
            "[default: by --out, or yaml]",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="PATH", help="Write it there. [default: standard output]")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite whatever is at --out.")] = False,
    storage: Storage = None,
) -> int:
    """Print a tuned config in another form, or write a file.

    `env` gives assignments for a shell: the variables that libraries read at their start, and every setting as
    AUTOTUNE_NAME. The form for a framework holds arguments of the framework; a comment names settings without such an
    argument.
    """
    from autotune.emit.agreed_arguments import is_agreed, note_written
    from autotune.emit.export import KINDS
    from autotune.emit.export import export as exported
    from autotune.report.streams import say, write_result

    ending = SUFFIXES.get(Path(out).suffix.lower()) if out is not None else None
    kind = to or ending or "yaml"
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a form of a tuned config.", f"It is one of {', '.join(KINDS)}.")
    if ending is not None and ending != KINDS[kind].suffix:
        hint = f"Let the file end in .{KINDS[kind].suffix}."
        raise UsageError(f"--to {kind} and --out {out} do not go together.", hint)
    config, source = _tuned_config(study, storage)
    if out is None:
        write_result(exported(config, kind))
    else:
        _write(working_directory() / out, config, kind, force=force)
        if is_agreed(source, config):
            note_written(working_directory() / out, config)
        say(f"Written: {out}")
    return 0


def _tuned_config(name: str, storage: str | None) -> tuple[TunedConfig, Path]:
    """The config in a file or of a study, and the path of the file."""
    from autotune.emit.tuned_config import read_config

    path = working_directory() / name
    if path.suffix.lower() in SUFFIXES:
        return read_config(path), path
    name = study_name(name)
    with open_repository(storage) as repository:
        record = repository.study(name)
    written = record.result.get("config") if record.result is not None else None
    if not written:
        hint = f"Go on with it: autotune resume {name}" if record.status in ("running", "interrupted") else ""
        raise ConfigError(f"Study {name!r} ({record.status}) has written no tuned config.", hint)
    path = Path(record.spec.cwd, written)
    config = read_config(path)
    if config.provenance.study != name:
        raise ConfigError(
            f"{written}, which study {name!r} wrote, now holds the config of study {config.provenance.study!r}.",
            "Search again with another --out.",
        )
    return config, path


def _write(path: Path, config: TunedConfig, kind: str, *, force: bool) -> None:
    from autotune.emit.export import KINDS
    from autotune.emit.export import export as exported
    from autotune.emit.writing import write_config

    if KINDS[kind].is_config and path.suffix:
        write_config(path, config, force=force)
        return
    text = exported(config, kind)  # Before the file: a config without this form leaves the file as it was.
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} is already there.", "Use another --out, or --force to replace it.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", "Use another --out.") from error
