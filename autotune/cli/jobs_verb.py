"""`autotune jobs`: lists, shows, watches and steers the jobs of a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import Json
from autotune.cli.server_options import DEFAULT_SERVER, Server, TokenFile, client_of
from autotune.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from autotune.client import Client, Job, ServiceEvent

EXAMPLES = """\b
Examples:
  autotune jobs
  autotune jobs watch 3f2a9c
  autotune jobs stop 3f2a9c --server https://tuner.example --token-file token
"""
SCHEMA = 1
EXIT_CODES = {"stopped": 130, "cancelled": 130}


def _examples(verb: str) -> str:
    return f"""\b
Examples:
  autotune jobs {verb} 3f2a9c01b7de
  autotune jobs {verb} 3f2a9c01b7de --server https://tuner.example --token-file token
"""


LIST_EXAMPLES = """\b
Examples:
  autotune jobs list
  autotune jobs list --json
"""
app = typer.Typer(help="List, show, watch and steer the jobs of a server.", rich_markup_mode=None)
JobId = Annotated[str, typer.Argument(metavar="ID", help="The job; `autotune jobs` lists them.")]


@app.callback(invoke_without_command=True)
def _default(
    context: typer.Context, server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False
) -> int:
    if context.invoked_subcommand is None:
        return list_jobs(server, token_file, as_json)
    if server != DEFAULT_SERVER or token_file is not None or as_json:
        raise UsageError("--server, --token-file and --json go after the verb.", f"As in: {context.command_path} list")
    return 0


@app.command("list", epilog=LIST_EXAMPLES)
def list_jobs(server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False) -> int:
    """List the jobs, the newest first."""
    from autotune.report.document import write_document
    from autotune.report.status_text import table_text
    from autotune.report.streams import printable, write_result

    jobs = client_of(server, token_file).jobs()
    if as_json:
        write_document({"schema": SCHEMA, "jobs": [dict(job.document) for job in jobs]})
    elif not jobs:
        write_result("The server has no job.\n")
    else:
        rows = [(job.id, job.status, job.project, job.script, job.study, job.document["created_at"]) for job in jobs]
        write_result(printable(table_text(("ID", "STATUS", "PROJECT", "SCRIPT", "STUDY", "SUBMITTED"), rows)))
    return 0


@app.command("show", epilog=_examples("show"))
def show_job(
    job_id: JobId, server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False
) -> int:
    """Show a job: state, workers and attempts."""
    show(client_of(server, token_file).job(job_id), as_json=as_json)
    return 0


@app.command("watch", epilog=_examples("watch"))
def watch(job_id: JobId, server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False) -> int:
    """Print the events of a job until its end; with --json as lines of JSON. The exit code is the job's."""
    return watch_job(client_of(server, token_file), job_id, as_json=as_json)


@app.command("pause", epilog=_examples("pause"))
def pause(job_id: JobId, server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False) -> int:
    """End the search after the running trial; resume goes on."""
    return _steer("pause", job_id, server, token_file, as_json)


@app.command("resume", epilog=_examples("resume"))
def resume(job_id: JobId, server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False) -> int:
    """Queue a paused or stopped job again."""
    return _steer("resume", job_id, server, token_file, as_json)


@app.command("stop", epilog=_examples("stop"))
def stop(job_id: JobId, server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False) -> int:
    """End the search after the running trial, with the best so far; resume goes on."""
    return _steer("stop", job_id, server, token_file, as_json)


@app.command("cancel", epilog=_examples("cancel"))
def cancel(job_id: JobId, server: Server = DEFAULT_SERVER, token_file: TokenFile = None, as_json: Json = False) -> int:
    """End the running trial and the search at once."""
    return _steer("cancel", job_id, server, token_file, as_json)


def _steer(verb: str, job_id: str, server: str, token_file: Path | None, as_json: bool) -> int:
    show(getattr(client_of(server, token_file), verb)(job_id), as_json=as_json)
    return 0


def show(job: Job, *, as_json: bool) -> None:
    """Prints a job."""
    from autotune.report.document import write_document
    from autotune.report.streams import printable, write_result

    document = dict(job.document)
    if as_json:
        write_document(document)
        return
    wanted = f" ({document['wanted']} asked for)" if document.get("wanted") else ""
    lines = [
        f"job      {job.id}",
        f"status   {job.status}{wanted}",
        f"study    {job.study}",
        f"script   {job.script} of project {job.project}",
    ]
    if document.get("workers"):
        lines.append(f"workers  {', '.join(document['workers'])}")
    if document.get("message"):
        lines.append(f"message  {document['message']}")
    write_result(printable("\n".join(lines)) + "\n")


def watch_job(client: Client, job_id: str, *, as_json: bool) -> int:
    """Prints the events of a job until its end; the exit code of the job."""
    import json

    from autotune.report.streams import printable, write_result

    for event in client.events(job_id):
        if as_json:
            write_result(json.dumps(dict(event.document)) + "\n")
        elif line := _line(event):
            write_result(f"{printable(line)}\n")
    job = client.job(job_id)
    code = job.document.get("exit_code")
    otherwise = 0 if job.status == "done" else 1
    return EXIT_CODES.get(job.status, code if isinstance(code, int) and 0 < code < 256 else otherwise)


def _line(event: ServiceEvent) -> str:
    """One event for people; empty for events that say nothing new."""
    document = event.document
    head = str(document.get("at", ""))[11:19]
    words = _WORDS.get(event.name)
    return f"{head}  {words(document)}" if words is not None else ""


def _trial(document: Mapping[str, Any]) -> str:
    rate = document.get("samples_per_second")
    rated = f"{rate:.1f} per second" if isinstance(rate, (int, float)) else str(document.get("reason") or "")
    return f"trial {document.get('number')}: {document.get('outcome')}, {rated}".rstrip(", ")


_WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "job": lambda document: " ".join(
        filter(None, (f"job {document.get('status')}", f"on {document['worker']}" if document.get("worker") else ""))
    ),
    "search_started": lambda document: f"search of {document.get('script')} on {document.get('machine')}",
    "probe_finished": lambda document: "the script is understood",
    "trial_started": lambda document: f"trial {document.get('number')} begins ({document.get('stage')})",
    "trial_finished": _trial,
    "finals_started": lambda document: f"finals of trials {', '.join(map(str, document.get('numbers', [])))}",
    "notice": lambda document: str(document.get("message", "")),
    "result": lambda document: f"result: {document.get('status')}",
}
