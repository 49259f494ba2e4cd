"""`autotune verify`: runs the script and the tuned settings in turns, and says whether the published ratio holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.completion_verb import complete_study
from autotune.cli.options import Flags, Json, Quiet, takes_options
from autotune.cli.place import open_repository, storage_in_use, working_directory
from autotune.errors import ConfigError, UsageError
from autotune.spec import DEFAULT_CONFIG
from autotune.study_file.name import study_name

if TYPE_CHECKING:
    from autotune.model.search_result import SearchResult

NOT_HELD = 8
"""The real ratio contradicts the published ratio, or is too uncertain to agree."""
INTERRUPTED = 130
EXAMPLES = """\b
Examples:
  autotune verify
  autotune verify train
  autotune verify train --pairs 5 --seconds 60
"""


@takes_options("verify")
def verify(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            autocompletion=complete_study,
            help=f"A finished study with a gain. [default: the study of {DEFAULT_CONFIG} in this folder]",
        ),
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", metavar="N", min=2, help="Runs of each side.")] = 3,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", min=1.0, help="Counted seconds of each run, after it settled.")
    ] = 30.0,
    *,
    flags: Flags,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Run your script and `autotune run` in turns, for real, and say whether the published gain holds.

    Both sides are real training in fresh processes, counted in the same way. They run like trials: no file of yours is
    changed. The result is stored with the study, and shown by best, report and --json. The exit code is 8 where the
    claim did not hold, or where the runs differ too much to tell.
    """
    from autotune.cli.trust_verb import agreed

    name = study_name(study) if study is not None else _study_of_config()
    with open_repository(flags["storage"]) as repository:
        agreed(repository.study(name))

    from autotune.cli.subscribers import told
    from autotune.report.streams import say
    from autotune.study import verifying
    from autotune.study.stop import StopRequest

    stop = StopRequest(saves=False)
    try:
        with told(stop, quiet=quiet) as tell:
            result, is_in_config = verifying.verify(
                name,
                storage=storage_in_use(flags["storage"]),
                cwd=working_directory(),
                num_pairs=pairs,
                window_s=seconds,
                on_event=tell,
                stop=stop,
                unprotected=flags["unprotected"],
            )
    except InterruptedError:
        say("Interrupted; nothing was stored.")
        return INTERRUPTED
    _show(result, is_in_config=is_in_config, as_json=as_json)
    return 0 if result.verifications[-1].finding.is_kept else NOT_HELD


def _study_of_config() -> str:
    """The study that wrote the tuned config of this folder."""
    from autotune.emit.tuned_config import read_config

    try:
        return read_config(working_directory() / DEFAULT_CONFIG).provenance.study
    except ConfigError as error:
        raise UsageError(f"There is no study to verify: {error.message}", "Name it: autotune verify STUDY") from error


def _show(result: SearchResult, *, is_in_config: bool, as_json: bool) -> None:
    from autotune.report.document import write_document
    from autotune.report.streams import write_result
    from autotune.report.verification_text import verification_document, verification_text

    if as_json:
        write_document(verification_document(result, is_in_config=is_in_config))
    else:
        write_result(verification_text(result, is_in_config=is_in_config))
