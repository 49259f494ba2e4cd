"""`autotune trust` on the command line: study files and tuned configs that somebody else made."""

import io
import json
import sys
from dataclasses import replace

import pytest

from autotune.emit.tuned_config import config_text, read_config
from autotune.errors import UsageError
from autotune.model.events import Notice
from autotune.settings import Settings

from ..unit.emit.example import tuned_config
from ..unit.report.examples import NATURAL


@pytest.fixture(autouse=True)
def state(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.mark.parametrize(
    ("text", "leads_outside"),
    [
        ('script = "train.py"\nstorage = "studies/mine.db"\nargs = ["--x"]\n', False),
        ('storage = "sqlite:///studies/mine.db"\nscript = "train.py"\n', False),
        ('script = "../train.py"\n', True),
        ('script = "train.py"\nstorage = "../mine.db"\n', True),
        ('script = "train.py"\nstorage = "/tmp/mine.db"\n', True),
        ('script = "train.py"\nstorage = "postgresql://db/x"\n', True),
        ('script = "train.py"\nout = "../autotune.yaml"\n', True),
        ('command = ["python", "train.py"]\n', True),
        ('module = "http.server"\n', True),
        ('script = "train.py"\nunprotected = true\n', True),
        ('script = "train.py"\nprotection = "none"\n', True),
        ('script = "train.py"\nwritable = ["../data"]\n', True),
        ('script = "train.py"\nprotection = "landlock"\nunprotected = false\n', False),
    ],
)
def test_a_search_asks_for_agreement_where_a_study_file_leads_out_of_its_folder(
    cli, tuner, folder, text, leads_outside
):
    (folder.parent / "train.py").write_text("")
    (folder / "study.toml").write_text(text)
    code, _, err = cli("search")
    if not leads_outside:
        assert (code, len(tuner.specs)) == (0, 1)
        return
    assert (code, tuner.specs) == (2, [])
    assert "study.toml names something outside its folder" in err and "autotune trust" in err
    code, out, _ = cli("trust")
    assert code == 0 and "Trusted, as it is now." in out
    assert cli("search")[0] in (0, 2)
    assert "you have not agreed" not in cli("search")[2]


def test_the_password_of_a_study_files_database_is_not_shown(cli, folder):
    (folder / "study.toml").write_text('storage = "postgresql://joe:hunter2secret@127.0.0.1/db"\n')
    code, _, err = cli("studies", "list")
    assert code == 2 and "postgresql://joe" in err and "hunter2secret" not in err


def test_an_agreement_ends_where_the_study_file_changes(cli, tuner, folder):
    (folder / "study.toml").write_text('command = ["python", "train.py"]\n')
    cli("trust")
    assert cli("search")[0] == 0
    (folder / "study.toml").write_text('command = ["python", "train.py", "--more"]\n')
    code, _, err = cli("search")
    assert code == 2 and '"--more"' in err


def test_what_the_user_says_himself_needs_no_agreement(cli, tuner, folder):
    (folder / "study.toml").write_text('storage = "postgresql://db/x"\ncommand = ["python", "train.py"]\n')
    assert cli("search", "train.py", "--storage", "mine.db")[0] == 0


def test_a_study_file_that_stays_in_its_folder_needs_no_agreement_and_says_so(cli, folder):
    (folder / "study.toml").write_text('script = "train.py"\n')
    assert "needs no agreement" in cli("trust")[1]


def test_without_a_study_file_trust_says_what_to_name(cli):
    code, _, err = cli("trust")
    assert code == 2 and "There is no study file here" in err


def test_a_dry_run_shows_what_an_agreed_study_file_says_of_protection(cli, tuner, folder):
    (folder / "study.toml").write_text(
        "script = 'train.py'\nprotection = 'none'\nunprotected = true\nwritable = ['runs', '/data/my out']\n"
    )
    assert cli("trust")[0] == 0
    _, out, _ = cli("search", "--dry-run")
    assert "\nprotection    none\n" in out
    assert f"\nwritable      {folder / 'runs'} '/data/my out', for real, in every trial\n" in out
    document = json.loads(cli("search", "--dry-run", "--json")[1])
    assert (document["protection"], document["unprotected"]) == ("none", True)
    assert document["writable"] == [str(folder / "runs"), "/data/my out"]


def test_a_dry_run_says_where_a_search_would_go_on_without_protection(cli, tuner):
    assert "\nprotection    auto\n" in cli("search", "train.py", "--dry-run")[1]
    _, out, _ = cli("search", "train.py", "--dry-run", "--unprotected")
    assert "\nprotection    auto, or none where the system permits none\n" in out


# A resume


def test_a_resume_prints_what_it_runs_before_it_runs(cli, tuner, stored, folder):
    stored(command=(sys.executable, "train.py", "--epochs", "90", "--api-key", "hunter22"))
    _, _, err = cli("resume", "train")
    assert "train.py --epochs 90 --api-key '***'" in err
    assert f"folder    {folder}" in err
    assert err.index("command  ") < err.index("    9  ok ")
    assert "hunter22" not in err


def test_a_resume_that_is_refused_does_not_say_that_it_goes_on(cli, stored):
    stored()
    code, _, err = cli("resume", "train")
    assert code == 2 and "you have not agreed" in err
    assert "goes on with" not in err
    assert err.count("command  ") == 1, "the refusal itself names the command"


def test_a_resume_that_is_refused_for_a_changed_script_shows_no_command(cli, tuner, stored, monkeypatch):
    def refuse(*_, on_event, **__):
        on_event(Notice(message="The database is locked; it is waited for."))
        raise UsageError("the script's file has changed.", "")

    stored()
    monkeypatch.setattr(sys.modules["autotune.study.searching"], "resume", refuse)
    code, _, err = cli("resume", "train")
    assert code == 2 and "has changed" in err and "it is waited for" in err
    assert "goes on with" not in err and "command  " not in err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("\n", 2)])
def test_at_a_terminal_a_resume_asks(cli, tuner, stored, monkeypatch, answer, code):
    stored()
    monkeypatch.setattr("autotune.cli.trust_verb._is_at_terminal", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    found, _, err = cli("resume", "train")
    assert found == code
    assert len(tuner.resumed) == (answer == "y\n")
    assert "was not started by you" in err and "Run it? [y/N]" in err


# A tuned config


@pytest.fixture
def config(folder):
    """A tuned config from elsewhere that gives the script arguments."""
    script = replace(
        tuned_config().script,
        natural=Settings(batch_size=64, intra_op_threads=2),
        maps={"num_workers": "--workers={} --exec=evil"},
        path="train.py",
    )
    config = replace(tuned_config(), settings=replace(NATURAL, num_workers=4), script=script)
    (folder / "autotune.yaml").write_text(config_text(config, "yaml"))
    return folder / "autotune.yaml"


def test_a_run_under_a_config_of_somebody_else_adds_no_argument_unasked(cli, config, monkeypatch):
    started = []
    monkeypatch.setattr("os.execvpe", lambda *arguments: started.append(arguments))
    code, _, err = cli("run", "train.py")
    if "process(es)" in err:
        code, _, err = cli("run", "train.py", "--nproc-per-node", "1")
    assert (code, started) == (2, [])
    assert "--workers=4 --exec=evil" in err and "autotune trust autotune.yaml" in err
    code, out, _ = cli("trust", "autotune.yaml")
    assert code == 0 and "--workers=4 --exec=evil" in out
    assert "was not written by a search of yours" not in cli("run", "train.py")[2]


def test_what_is_shown_for_an_agreement_cannot_be_hidden_by_the_terminal(cli, config):
    written = read_config(config)
    script = replace(written.script, maps={"num_workers": "--workers={} --exec=evil\x1b[2K\x1b[1A"})
    config.write_text(config_text(replace(written, script=script), "yaml"))
    code, out, _ = cli("trust", "autotune.yaml")
    assert code == 0 and "--exec=evil" in out and "\x1b" not in out


@pytest.mark.parametrize(("name", "value"), [("num_workers", 10**9), ("intra_op_threads", 10**6)])
def test_a_config_with_an_absurd_number_is_refused_by_name(cli, folder, config, name, value):
    text = config.read_text()
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{name}:"))
    config.write_text(text.replace(line, f"{line.partition(':')[0]}: {value}"))
    code, _, err = cli("run", "train.py")
    assert code == 2
    assert f"{name} {value} is more than" in err
