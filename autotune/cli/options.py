"""Options that several verbs have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from autotune.cli.completion_verb import complete_device, complete_study
from autotune.errors import UsageError
from autotune.study_file.name import study_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What goes to standard output, and how much is said beside it."""

    as_json: bool = False
    as_jsonl: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuses two forms at once.

        Raises:
            UsageError: One document and a stream are asked for.
        """
        if self.as_json and self.as_jsonl:
            hint = "The last line of --jsonl holds what --json prints."
            raise UsageError("--json and --jsonl exclude each other.", hint)


Storage = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="Database: a path, or a URL such as postgresql://user@host/database. [AUTOTUNE_STORAGE; default: "
        "studies/autotune.db]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, all talk on standard error.")]
JsonLines = Annotated[
    bool,
    typer.Option("--jsonl", help="Every event as a line of JSON on standard output, while it runs (docs/events.md)."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings and the result.")]
Study = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        callback=study_name,
        autocompletion=complete_study,
        help="Name of the study; `autotune studies` lists them.",
    ),
]
Script = Annotated[
    str | None,
    typer.Argument(metavar="SCRIPT", help="The training script; its own arguments follow --.", show_default=False),
]
Module = Annotated[
    str | None, typer.Option("-m", "--module", metavar="MODULE", help="The script as a module, as after `python -m`.")
]
NumProcesses = Annotated[
    str | None,
    typer.Option("--nproc-per-node", metavar="N", help="Processes that train together on this machine, by torchrun."),
]
StudyFile = Annotated[
    str | None, typer.Option("--study-file", metavar="PATH", help="Read this instead of ./study.toml.")
]
MemoryCap = Annotated[
    str | None,
    typer.Option(
        "--memory-cap",
        metavar="16GiB|80%",
        help="Most device memory that training may take. [default: 90% of what is free; CPU: 80%]",
    ),
]
EffectiveBatch = Annotated[
    str | None,
    typer.Option(
        "--effective-batch",
        metavar="fixed|free|LOW..HIGH",
        help="Samples per optimizer step; another batch trains differently. [default: fixed]",
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="KEY=TEMPLATE",
        help="Give a setting, or a knob of yours, to the script as an argument: num_workers=--workers={}. Repeatable.",
    ),
]
SamplesPerStep = Annotated[
    str | None,
    typer.Option("--samples-per-step", metavar="N", help="Samples per optimizer step, where they cannot be counted."),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="auto|cpu|cuda[:N]",
        autocompletion=complete_device,
        help="Where it trains. [default: auto]",
    ),
]
ShareGpu = Annotated[bool, typer.Option("--share-gpu", help="Measure although other processes use the device.")]
AllowBatchnorm = Annotated[
    bool,
    typer.Option("--allow-batchnorm-accumulation", help="Split batches although BatchNorm then sees smaller ones."),
]
Writable = Annotated[
    list[str] | None,
    typer.Option("--writable", metavar="PATH", help="Let trials write there for real, and overwrite. Repeatable."),
]

ProtectionMode = Annotated[
    str | None,
    typer.Option(
        "--protection",
        metavar="auto|layers|landlock|none",
        help="What keeps your files from what trials write. [default: auto, the best that the system permits]",
    ),
]
Unprotected = Annotated[
    bool,
    typer.Option("--unprotected", help="Go on where nothing protects your files; what trials change there is named."),
]


def flags_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """What the options of a search say, by key of a study file, and which study file they name.

    Args:
        params: The parameters of the command, as the parser read them.
    """
    from autotune.study_file.study_schema import KEYS

    flags = {name.rstrip("_"): value for name, value in params.items()}
    return {name: value for name, value in flags.items() if name in (*KEYS, "study_file")}
