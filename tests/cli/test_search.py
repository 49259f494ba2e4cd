import json
import sys

import pytest

from autotune.errors import EveryTrialFailedError, HostError, NoFeasibleSettingsError, StoreError, StudyExistsError
from autotune.model.search_result import Status

from ..unit.report.examples import BASELINE, search_result


def test_the_result_is_on_standard_output_and_the_talk_on_standard_error(cli, tuner):
    code, out, err = cli("search", "train.py")
    assert code == 0
    assert out.startswith("These settings train 2.41x")
    assert "study train: train.py on" in err
    assert "2.41x" not in err


def test_the_spec_is_what_was_asked(cli, tuner, folder):
    cli("search", "train.py", "--trials", "5", "--set", "num_workers=0..4", "--fix", "precision=bf16", "--", "-x", "--")
    (spec,) = tuner.specs
    assert spec.command == (sys.executable, "train.py", "-x", "--")
    assert spec.script == str(folder / "train.py")
    assert (spec.study, spec.max_trials, spec.cwd) == ("train", 5, str(folder))
    assert (spec.ranges, spec.fixed) == ((("num_workers", "0..4"),), (("precision", "bf16"),))


def test_a_study_whose_trials_count_is_named(cli, tuner):
    cli("search", "train.py", "--study", "more", "--take-over", "train")
    assert (tuner.specs[0].study, tuner.specs[0].take_over) == ("more", "train")


def test_a_module_a_number_of_processes_and_a_whole_command(cli, tuner, folder):
    (folder / "pkg").mkdir()
    (folder / "pkg" / "train.py").write_text("")
    cli("search", "-m", "pkg.train", "--", "x")
    cli("search", "train.py", "--nproc-per-node", "2")
    cli("search", "--", sys.executable, "-u", "train.py", "x")
    assert tuner.specs[0].command == (sys.executable, "-m", "pkg.train", "x")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "--max-restarts=0")
    assert tuner.specs[1].command == (sys.executable, *launcher, "train.py")
    assert tuner.specs[1].num_processes_per_node == 2
    assert tuner.specs[2].command == (sys.executable, "-u", "train.py", "x")


def test_the_study_file_is_read(cli, tuner, folder):
    (folder / "study.toml").write_text("script = 'train.py'\nstudy = 'photos'\n")
    assert cli("search")[0] == 0
    assert tuner.specs[0].study == "photos"


def test_json_is_exactly_one_document_and_the_summary_is_talk(cli, tuner):
    code, out, err = cli("search", "train.py", "--json")
    assert code == 0
    assert json.loads(out) == search_result().document()
    assert "These settings train 2.41x" in err


def test_quiet_json_says_nothing_beside_the_document(cli, tuner):
    _, out, err = cli("search", "train.py", "--json", "--quiet")
    assert json.loads(out)["status"] == "improved"
    assert err == ""


def test_events_are_lines_of_json_and_the_last_one_is_the_document(cli, tuner):
    code, out, err = cli("search", "train.py", "--jsonl")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["event"] for line in lines] == ["search_started", "probe_finished", "trial_finished", "result"]
    assert {**lines[-1], "event": None, "at": None} == {**search_result().document(), "event": None, "at": None}
    assert "These settings train 2.41x" in err


@pytest.mark.parametrize(
    ("words", "message"), [(["--json"], "--json and --jsonl exclude each other"), (["--dry-run"], "goes with a search")]
)
def test_a_stream_goes_with_no_document(cli, tuner, words, message):
    code, out, err = cli("search", "train.py", "--jsonl", *words)
    assert (code, out) == (2, "")
    assert message in err and tuner.specs == []


def test_quiet_still_prints_the_result(cli, tuner):
    _, out, err = cli("search", "train.py", "-q")
    assert out.startswith("These settings") and err == ""


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.IMPROVED, 0),
        (Status.NO_GAIN, 0),
        (Status.BASELINE_INFEASIBLE, 0),
        (Status.NO_FEASIBLE, 3),
        (Status.ALL_FAILED, 4),
        (Status.INTERRUPTED, 130),
    ],
)
def test_the_exit_code_tells_how_it_ended(cli, tuner, status, code):
    tuner.result = search_result(status=status, speedup=None)
    found, out, _ = cli("search", "train.py", "--json")
    assert found == code
    assert json.loads(out)["status"] == status.value


def test_a_gain_can_be_required(cli, tuner):
    assert cli("search", "train.py", "--require-gain")[0] == 0
    tuner.result = search_result(status=Status.NO_GAIN, best=BASELINE, speedup=None)
    code, _, err = cli("search", "train.py", "--require-gain")
    assert code == 7
    assert "no gain beyond the noise" in err
    assert cli("search", "train.py")[0] == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StudyExistsError("There is a study 'train'.", "Go on with it: autotune resume train"), 2),
        (NoFeasibleSettingsError("It does not fit.", "Raise --memory-cap."), 3),
        (EveryTrialFailedError("The script did not train.", "The last lines:\nno\nsuch file"), 4),
        (StoreError("The database is gone.", "Look for it."), 5),
        (HostError("There is no CUDA device.", "Use --device cpu."), 6),
    ],
)
def test_an_error_is_a_sentence_and_a_hint_without_a_traceback(cli, tuner, error, code):
    tuner.error = error
    found, out, err = cli("search", "train.py", "--json", "--quiet")
    assert found == code
    assert out == ""
    assert err == f"autotune: error: {error.message}\n" + (f"{error.hint}\n" if error.hint else "")


def test_a_fault_of_ours_is_not_dressed_up_as_the_users(cli, tuner):
    tuner.error = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        cli("search", "train.py")


def test_an_interrupt_outside_of_a_search_is_no_traceback(cli, tuner):
    tuner.error = KeyboardInterrupt()
    code, out, err = cli("search", "train.py")
    assert (code, out) == (130, "")
    assert err.endswith("autotune: error: Interrupted.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.py"], "There is no script missing.py"),
        (["broken.py"], "broken.py line 1"),
        (["-m", "missing.module"], "There is no module 'missing.module'"),
        (["--", "no-such-program", "train.py"], "There is no program 'no-such-program'"),
        ([], "There is no script to run"),
        (["train.py", "--trials", "0"], "--trials '0' is not at least 1"),
        (["train.py", "--probe"], "--probe goes with --dry-run"),
        (["train.py", "--study-file", "none.toml"], "none.toml cannot be read"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_started(cli, tuner, folder, words, message):
    (folder / "broken.py").write_text("x = (\n")
    code, out, err = cli("search", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert tuner.specs == []


def test_a_deleted_working_directory_is_told(cli, tuner, folder, monkeypatch):
    inner = folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    inner.rmdir()
    code, _, err = cli("search", "train.py")
    assert code == 2
    assert "The working directory is not there any more" in err


def test_the_next_commands_hold_in_this_folder(cli, tuner, folder):
    tuner.result = search_result(config=str(folder / "autotune.yaml"))
    _, out, _ = cli("search", "train.py", "--", "--data", "my photos")
    assert "    autotune run train.py -- --data 'my photos'\n" in out
    assert "    autotune export train --to json\n" in out
    assert "Config: autotune.yaml\n" in out


def test_the_next_commands_name_database_and_config_where_they_are_not_the_usual_ones(cli, tuner, folder):
    tuner.result = search_result(config=str(folder / "tuned" / "a.toml"))
    _, out, _ = cli("search", "train.py", "--storage", "other.db", "--out", "tuned/a.toml", "--", "-x")
    assert "    autotune run train.py --config tuned/a.toml -- -x\n" in out
    assert "    autotune export train --to json --storage other.db\n" in out


def test_the_next_commands_hide_what_is_secret(cli, tuner, folder):
    tuner.result = search_result(config=str(folder / "autotune.yaml"))
    storage = "postgresql://ada:hunter2@host/database"
    _, out, err = cli("search", "train.py", "--storage", storage, "--", "--api-key", "hunter2")
    assert "hunter2" not in out + err
    assert "--api-key '***'" in out


def test_a_dry_run_calls_unknown_what_only_the_probe_can_know(cli, tuner):
    code, out, _ = cli("search", "train.py", "--dry-run")
    assert code == 0
    assert tuner.previews == [False]
    assert out.count("unknown until the script has run once") == 3
    assert "memory cap    16.0 GiB" in out
    assert "budget        15 min 0 s at most, probe and finals included" in out


def test_a_dry_run_with_the_probe_prints_the_space_what_is_left_out_and_the_first_settings(cli, tuner):
    code, out, _ = cli("search", "train.py", "--dry-run", "--probe")
    assert code == 0
    assert tuner.previews == [True]
    assert "unknown" not in out
    assert "  num_workers: 0, 1, 2\n" in out
    assert "  batch_size: 32, 64\n" in out
    assert "  storage: the script's own, npy\n" in out
    assert "  12 combinations\n" in out
    assert "  split: BatchNorm would see smaller batches\n" in out
    assert "  baseline: your settings\n" in out
    assert "  workers: num_workers=4 persistent_workers=true precision=bf16\n" in out


def test_a_dry_run_as_a_document(cli, tuner):
    _, out, _ = cli("search", "train.py", "--dry-run", "--json")
    document = json.loads(out)
    assert document["searched"] is None and document["first"] is None and document["natural"] is None
    _, out, _ = cli("search", "train.py", "--dry-run", "--probe", "--json")
    document = json.loads(out)
    assert document["searched"]["batch_size"] == [32, 64]
    assert document["refused"] == {"split": "BatchNorm would see smaller batches"}
    assert [first["stage"] for first in document["first"]] == ["baseline", "workers"]
    assert document["facts"]["device"] == "cpu"


def test_an_interrupted_dry_run_ends_with_130(cli, tuner):
    tuner.error = InterruptedError()
    code, out, err = cli("search", "train.py", "--dry-run", "--probe")
    assert (code, out) == (130, "")
    assert "nothing was stored" in err
