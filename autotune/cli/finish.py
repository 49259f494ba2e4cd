"""The end of `search` and `resume`: the result on standard output, and the exit code."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from autotune.cli.options import Output
from autotune.cli.place import storage_in_use, working_directory
from autotune.errors import UsageError
from autotune.model.search_result import SearchResult, Status
from autotune.report import streams
from autotune.report.document import write_document
from autotune.report.event_stream import EventStream
from autotune.report.summary_text import NextCommands, summary
from autotune.report.terminal_text import render
from autotune.spec import DEFAULT_CONFIG, SearchSpec
from autotune.store.secrets import mask_arguments
from autotune.store.url import mask_url
from autotune.study.limits import options_for_more
from autotune.study_file.command import as_typed

NO_GAIN = 7
"""With --require-gain only; a search without a gain is no failure otherwise."""
UNCERTAIN = 8
"""With --require-gain only: the finals and the trials contradict each other."""


def finish(
    result: SearchResult, spec: SearchSpec, output: Output, *, storage: str, stream: EventStream | None = None
) -> int:
    """Prints the result; the exit code.

    Args:
        result: Result of the search.
        spec: Options of the search.
        output: Where the result goes. With a document or a stream on standard output the summary is talk.
        storage: The database, as the user named it.
        stream: Stream of events; None without `--jsonl`.
    """
    text = summary(result, next_commands(result, spec, storage=storage))
    if output.as_json or stream is not None:
        if not output.quiet:
            talk = streams.BestEffortStream(sys.stderr)
            talk.write(render(text, is_terminal=talk.isatty()))
        if stream is not None:
            stream.finish(result.document())
        else:
            write_document(result.document())
    else:
        streams.write_result(render(text, is_terminal=streams.is_watched()))
    if spec.require_gain and result.status in (Status.NO_GAIN, Status.TOO_SHORT):
        streams.say("autotune: --require-gain was asked for, and there is no gain beyond the noise.")
        return NO_GAIN
    if spec.require_gain and result.status is Status.IMPROVED and result.doubt:
        streams.say("autotune: --require-gain was asked for, and the gain is in doubt.")
        return UNCERTAIN
    return result.status.exit_code


def next_commands(result: SearchResult, spec: SearchSpec, *, storage: str) -> NextCommands:
    """Commands to type next, in the directory and environment of this process; secrets are masked."""
    cwd = working_directory()
    more = options_for_more(spec, result.enough_s) if result.enough_s is not None else ()
    there = () if _is_usual(storage) else ("--storage", mask_url(storage))
    return NextCommands(
        resume=shlex.join(["autotune", "resume", result.study, *more, *there]),
        export=shlex.join(["autotune", "export", result.study, "--to", "json", *there]),
        show=shlex.join(["autotune", "studies", "show", result.study, *there]),
        report=shlex.join(["autotune", "report", result.study, *there]),
        run=_run_command(result.config, spec, cwd),
        cwd=str(cwd),
    )


def _is_usual(storage: str) -> bool:
    """Whether a verb without --storage reads this database here."""
    try:
        return storage_in_use(None) == storage
    except UsageError:  # A study file names another one, which this user has not agreed to.
        return False


def _run_command(config: str | None, spec: SearchSpec, cwd: Path) -> str:
    words = list(as_typed(mask_arguments(spec.command)))
    if config is not None and Path(spec.cwd, config) != Path(spec.cwd, DEFAULT_CONFIG):
        position = words.index("--") if "--" in words else len(words)
        path = Path(spec.cwd, config)
        words[position:position] = [
            "--config",
            str(path.relative_to(spec.cwd) if path.is_relative_to(spec.cwd) else path),
        ]
    command = shlex.join(["autotune", "run", *words])
    return command if Path(spec.cwd) == cwd else f"cd {shlex.quote(spec.cwd)} && {command}"
