"""The surface of the command line: a new verb, option or exit code is a deliberate edit here."""

import inspect
import re
from pathlib import Path

import pytest
import typer

from autotune.cli.main import app, main
from autotune.study_file.search_options import KEYS, NO_VARIABLE

HELP = {"-h", "--help"}
OF_A_PROBE = {
    "-m",
    "--module",
    "--nproc-per-node",
    "--study-file",
    "--memory-cap",
    "--samples-per-step",
    "--device",
    "--share-gpu",
    "--protection",
    "--unprotected",
    "--writable",
    "--json",
    "-q",
    "--quiet",
}
SURFACE = {
    "": {"--version", "--install-completion", "--show-completion"},
    "search": OF_A_PROBE
    | {
        "--study",
        "--storage",
        "--trials",
        "--time",
        "--effective-batch",
        "--set",
        "--fix",
        "--map",
        "--take-over",
        "--out",
        "--force",
        "--seed",
        "--spend-all",
        "--start",
        "--require-gain",
        "--network",
        "--allow-batchnorm-accumulation",
        "--jsonl",
        "--dry-run",
        "--probe",
    },
    "resume": {"--storage", "--trials", "--time", "--unprotected", "--json", "--jsonl", "-q", "--quiet"},
    "best": {"--storage", "--json"},
    "verify": {"--pairs", "--seconds", "--storage", "--unprotected", "--json", "-q", "--quiet"},
    "export": {"--to", "--out", "--force", "--storage"},
    "run": {"-m", "--module", "--nproc-per-node", "--config", "--share", "--watch", "--device"},
    "pack": {"--to", "--out", "--processes", "--samples-per-part", "--check", "--json", "-q", "--quiet"},
    "record": {
        "--out",
        "-m",
        "--module",
        "--nproc-per-node",
        "--study",
        "--study-file",
        "--set",
        "--fix",
        "--map",
        "--repeats",
        "--time",
        "--window",
        "--memory-cap",
        "--effective-batch",
        "--samples-per-step",
        "--seed",
        "--start",
        "--device",
        "--share-gpu",
        "--protection",
        "--unprotected",
        "--allow-batchnorm-accumulation",
        "--writable",
        "--json",
        "--jsonl",
        "-q",
        "--quiet",
    },
    "compare": {"--max-regression", "--storage", "--json"},
    "report": {"--format", "--out", "--interactive", "--force", "--storage"},
    "config": set(),
    "config show": {"--origin", "--json"},
    "diagnose": OF_A_PROBE | {"--profile", "--out"},
    "estimate": OF_A_PROBE | {"--card"},
    "doctor": {"--json"},
    "studies": {"--storage", "--json"},
    "studies list": {"--storage", "--json"},
    "studies show": {"--storage", "--json"},
    "studies delete": {"--storage", "-y", "--yes"},
    "studies upgrade": {"--storage"},
    "serve": {
        "--project",
        "--host",
        "--port",
        "--token-file",
        "--no-worker",
        "--slot",
        "--unprotected",
        "--storage",
        "--lease-time",
        "--read-only-token-file",
        "--allow-host",
        "--trust-proxy",
        "--audit-log",
        "--worker-token-file",
        "--network",
    },
    "workers": set(),
    "workers ray": {
        "--server",
        "--token-file",
        "--project",
        "--address",
        "--number",
        "--slot",
        "--unprotected",
        "--network",
    },
    "workers slurm": {
        "--server",
        "--token-file",
        "--project",
        "--number",
        "--partition",
        "--slot",
        "--unprotected",
        "--network",
        "--sbatch",
        "--logs",
        "--dry-run",
    },
    "worker": {"--server", "--token-file", "--project", "--slot", "--name", "--storage", "--unprotected", "--network"},
    "submit": {
        "--nproc-per-node",
        "--study",
        "--memory-cap",
        "--trials",
        "--time",
        "--effective-batch",
        "--set",
        "--fix",
        "--map",
        "--samples-per-step",
        "--take-over",
        "--seed",
        "--device",
        "--spend-all",
        "--start",
        "--require-gain",
        "--share-gpu",
        "--protection",
        "--allow-batchnorm-accumulation",
        "--server",
        "--token-file",
        "--project",
        "--machines",
        "--watch",
        "--json",
    },
    "jobs": {"--server", "--token-file", "--json"},
    **{
        f"jobs {verb}": {"--server", "--token-file", "--json"}
        for verb in ("list", "show", "watch", "pause", "resume", "stop", "cancel")
    },
    "trust": {"--storage"},
}
"""Options by verb; every one has -h and --help beside them."""


def commands(command, name=""):
    yield name, command
    for inner, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {inner}".strip())


def surface():
    root = typer.main.get_command(app)
    found = {}
    for name, command in commands(root):
        context = command.make_context("autotune", [], resilient_parsing=True)
        options = {option for parameter in command.get_params(context) for option in parameter.opts}
        found[name] = {option for option in options if option.startswith("-")} - HELP
    return found


def test_verbs_and_options_are_these_and_no_others():
    assert surface() == SURFACE


@pytest.mark.parametrize("verb", SURFACE)
def test_help_of_every_verb_is_on_standard_output_and_ends_with_0(capsys, verb):
    assert main([*verb.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: autotune") and err == ""
    for option in SURFACE[verb]:
        assert re.search(rf"(^|[\s,]){option}\b", out), option


@pytest.mark.parametrize("verb", SURFACE)
def test_help_shows_examples_one_per_line(capsys, verb):
    main([*verb.split(), "--help"])
    out = capsys.readouterr().out
    examples = out[out.index("Examples:") :].splitlines()[1:]
    assert len(examples) >= 2
    assert all(line.strip().startswith(("autotune ", "set -a")) for line in examples if line.strip())


def test_every_option_of_a_search_is_a_key_of_the_study_file_or_of_this_run_alone():
    of_this_run = {"study_file", "json", "jsonl", "quiet", "dry_run", "probe"}
    options = {name[2:].replace("-", "_") for name in SURFACE["search"] if name.startswith("--")}
    assert options - of_this_run == set(KEYS) - {"script", "command", "args"}
    assert set(NO_VARIABLE) < set(KEYS)


def test_what_the_command_line_calls_is_there():
    from autotune.study.apply import run_command
    from autotune.study.preview import Preview, preview
    from autotune.study.searching import resume, search
    from autotune.study.stop import StopRequest

    stop = StopRequest()
    assert stop.level == 0
    stop.request()
    assert stop.level == 1
    inspect.signature(search).bind("spec", on_event=print, stop=stop)
    inspect.signature(resume).bind("study", storage="", cwd=Path(), on_event=print, stop=stop)
    inspect.signature(preview).bind("spec", run_probe=True, on_event=print, stop=stop)
    inspect.signature(run_command).bind("config", (), Path(), share=False)
    assert set(Preview.__dataclass_fields__) == {
        "spec",
        "machine",
        "device",
        "memory_cap_bytes",
        "storage",
        "probe",
        "searched",
        "num_settings",
        "first",
    }


def test_the_version_is_on_standard_output(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"autotune \S+\n", capsys.readouterr().out)


def test_nothing_at_all_is_a_usage_error_with_the_help_as_talk(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Usage: autotune")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["serach"], "No such command 'serach'. Did you mean 'search'?", "autotune --help"),
        (["search", "train.py", "--epochs", "3"], "No such option: --epochs", "autotune search train.py -- --epochs"),
        (["search", "train.py", "photos"], "unexpected extra argument", "autotune search train.py -- --epochs"),
        (["search", "torchrun", "train.py"], "unexpected extra argument", "autotune search -- torchrun"),
        (["run", "train.py", "--epochs"], "No such option: --epochs", "autotune run train.py --"),
        (["best"], "Missing", "autotune best --help"),
        (["studies", "show", "a", "--jsn"], "No such option: --jsn", "autotune studies show --help"),
    ],
)
def test_a_mistyped_line_is_answered_with_what_was_probably_meant(capsys, words, message, hint):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("autotune: error: ")
    assert message in err and hint in err


def test_a_variable_that_no_verb_reads_is_said_once_before_the_verb(cli, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_MEMORYCAP", "8GiB")
    code, out, err = cli("doctor", "--help")
    assert code == 0 and "AUTOTUNE" not in out
    said = "autotune: AUTOTUNE_MEMORYCAP is no variable that autotune reads; did you mean AUTOTUNE_MEMORY_CAP?\n"
    assert err == said
    monkeypatch.setenv("AUTOTUNE_TRIAL", "/somewhere")
    assert cli("doctor", "--help")[2] == ""
