"""The command `autotune` with all verbs. All errors are printed here."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from autotune.cli import (
    best_verb,
    compare_verb,
    config_verb,
    diagnose_verb,
    doctor_verb,
    estimate_verb,
    export_verb,
    jobs_verb,
    pack_verb,
    record_verb,
    report_verb,
    resume_verb,
    run_verb,
    search_verb,
    serve_verb,
    studies_verb,
    submit_verb,
    trust_verb,
    verify_verb,
    worker_verb,
    workers_verb,
)
from autotune.cli.tail import TailCommand
from autotune.errors import AutotuneError
from autotune.report import streams

INTERRUPTED = 130
WITH_SCRIPT = (
    "autotune search",
    "autotune run",
    "autotune record",
    "autotune config show",
    "autotune diagnose",
    "autotune estimate",
)
COMPLETION_VARIABLE = "_AUTOTUNE_COMPLETE"
_USAGE_ERROR: type[Exception] = typer.BadParameter.__base__ or Exception
"""Error of the parser. The module of the parser depends on the release of typer."""

_HELP = "Find the fastest safe settings for your own PyTorch training script, under a memory cap."
_EXAMPLES = """\b
Examples:
  autotune search train.py -- --data photos    try settings on your script
  autotune run train.py -- --data photos       train with what was found
  autotune best train                          what was found, also while it runs
"""

app = typer.Typer(
    name="autotune",
    help=_HELP,
    epilog=_EXAMPLES,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("search", cls=TailCommand, epilog=search_verb.EXAMPLES)(search_verb.search)
app.command("resume", epilog=resume_verb.EXAMPLES)(resume_verb.resume)
app.command("best", epilog=best_verb.EXAMPLES)(best_verb.best)
app.command("export", epilog=export_verb.EXAMPLES)(export_verb.export)
app.command("run", cls=TailCommand, epilog=run_verb.EXAMPLES)(run_verb.run)
app.command("verify", epilog=verify_verb.EXAMPLES)(verify_verb.verify)
app.command("record", cls=TailCommand, epilog=record_verb.EXAMPLES)(record_verb.record)
app.command("compare", epilog=compare_verb.EXAMPLES)(compare_verb.compare)
app.command("report", epilog=report_verb.EXAMPLES)(report_verb.report)
app.command("diagnose", cls=TailCommand, epilog=diagnose_verb.EXAMPLES)(diagnose_verb.diagnose)
app.command("estimate", cls=TailCommand, epilog=estimate_verb.EXAMPLES)(estimate_verb.estimate)
app.command("pack", epilog=pack_verb.EXAMPLES)(pack_verb.pack)
app.command("doctor", epilog=doctor_verb.EXAMPLES)(doctor_verb.doctor)
app.command("serve", epilog=serve_verb.EXAMPLES)(serve_verb.serve)
app.command("worker", epilog=worker_verb.EXAMPLES)(worker_verb.worker)
app.command("submit", cls=TailCommand, epilog=submit_verb.EXAMPLES)(submit_verb.submit)
app.command("trust", epilog=trust_verb.EXAMPLES)(trust_verb.trust)
app.add_typer(config_verb.app, name="config", epilog=config_verb.EXAMPLES)
app.add_typer(jobs_verb.app, name="jobs", epilog=jobs_verb.EXAMPLES)
app.add_typer(studies_verb.app, name="studies", epilog=studies_verb.EXAMPLES)
app.add_typer(workers_verb.app, name="workers", epilog=workers_verb.EXAMPLES)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from autotune import __version__

        streams.write_result(f"autotune {__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> int:
    if context.invoked_subcommand is None:
        streams.say(context.get_help())
        return 2
    _say_what_is_not_read()
    return 0


def _say_what_is_not_read() -> None:
    """Prints a line for every AUTOTUNE_ variable without a meaning; most are misspelled."""
    if any(name.startswith("AUTOTUNE_") for name in os.environ):
        from autotune.study_file.sources import unread_variables  # Takes a tenth of a second.

        for sentence in unread_variables(os.environ):
            streams.say(f"autotune: {sentence}")


def main(argv: list[str] | None = None) -> int:
    """Runs a verb; gives the exit code.

    Args:
        argv: The words after the program's name; None = the words of this process.
    """
    streams.prepare(_mask)
    command = typer.main.get_command(app)
    if COMPLETION_VARIABLE in os.environ:
        command.main(argv, prog_name="autotune")  # answers the shell, and leaves
    try:
        # Not command.main(), which swallows an interrupt.
        with command.make_context("autotune", sys.argv[1:] if argv is None else list(argv)) as context:
            code = command.invoke(context)
    except AutotuneError as error:
        return _fail(error.message, error.hint, error.exit_code)
    except _USAGE_ERROR as error:
        return _fail(*_parsing_words(error), 2)
    except typer.Exit as done:
        return done.exit_code
    except KeyboardInterrupt:
        return _fail("Interrupted.", "", INTERRUPTED)
    except BrokenPipeError:  # by the help text; results and talk handle a closed pipe themselves
        streams.lead_nowhere(sys.stdout)
        return 0
    return code if isinstance(code, int) else 0


def _mask(text: str) -> str:
    from autotune.store.secrets import mask_known

    return mask_known(text)


def _fail(message: str, hint: str, code: int) -> int:
    from autotune.store.secrets import mask_text

    streams.say(mask_text(f"autotune: error: {message}"))
    if hint:
        streams.say(hint)
    return code


def _parsing_words(error: BaseException) -> tuple[str, str]:
    """Message and hint for an error of the parser."""
    message = getattr(error, "format_message", lambda: str(error))()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "autotune"
    hint = f"See {path} --help."
    if path in WITH_SCRIPT and ("No such option" in message or "unexpected extra" in message):
        hint = (
            f"The script's own arguments go after --, as in: {path} train.py -- --epochs 90. So does a whole command, "
            f"as in: {path} -- torchrun --nproc-per-node 2 train.py"
        )
    return message, hint


if __name__ == "__main__":
    raise SystemExit(main())
