"""Options that several verbs have."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.study_file.name import study_name

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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings and the result.")]
Study = Annotated[
    str,
    typer.Argument(metavar="STUDY", callback=study_name, help="Name of the study; `autotune studies` lists them."),
]
Script = Annotated[str | None, typer.Argument(metavar="SCRIPT", help="The training script.", show_default=False)]
Module = Annotated[
    str | None, typer.Option("-m", "--module", metavar="MODULE", help="The script as a module, as after `python -m`.")
]
NumProcesses = Annotated[
    str | None,
    typer.Option("--nproc-per-node", metavar="N", help="Processes that train together on this machine, by torchrun."),
]
