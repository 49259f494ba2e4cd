"""Verbs that read or change what is stored: resume, best, export, studies."""

import io
import json
import os
import re
import sys
from datetime import UTC, datetime

import pytest

from autotune.emit.tuned_config import config_text, read_config
from autotune.model.outcome import Outcome
from autotune.model.search_result import Status, Steadiness
from autotune.spec import DEFAULT_STORAGE
from autotune.store.records import Owner
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from autotune.units import format_age

from ..unit.emit.example import tuned_config
from ..unit.facts import script_facts
from ..unit.report.examples import BASELINE, NATURAL, TUNED, failed, measured, search_result
from .conftest import CREATED, trial_record

TRIALS = (
    trial_record(0, NATURAL, measured(1000.0)),
    trial_record(1, TUNED, measured(2410.0)),
    trial_record(2, TUNED, failed(Outcome.CRASHED, "RuntimeError: token=hunter2")),
)


def names(folder):
    with Repository.open(resolve_url("", folder)) as repository:
        return [record.name for record in repository.studies()]


# Resume


def test_a_resume_goes_on_and_compares_with_what_was_found_before(cli, tuner, stored):
    stored(trials=TRIALS[:1])
    code, out, err = cli("resume", "train")
    assert code == 0
    assert tuner.resumed == [("train", DEFAULT_STORAGE)]
    assert out.startswith("These settings train 2.41x")
    assert "    9  ok                 3,000   3.00x" in err


def test_a_resume_hands_on_new_limits_and_asks_no_variable_for_them(cli, tuner, stored, monkeypatch):
    stored()
    assert cli("resume", "train", "--time", "3m", "--trials", "12")[0] == 0
    monkeypatch.setenv("AUTOTUNE_TIME", "9m")
    assert cli("resume", "train")[0] == 0
    assert tuner.limits == [{"budget_s": 180.0, "max_trials": 12}, {}]
    code, out, err = cli("resume", "train", "--time", "soon")
    assert (code, out) == (2, "") and "--time" in err and "soon" in err


def test_the_summary_of_a_search_that_was_too_short_ends_with_the_resume_that_goes_on(cli, tuner, stored):
    stored(max_trials=3)
    tuner.result = search_result(status=Status.TOO_SHORT, best=BASELINE, speedup=None, enough_s=170.0)
    _, out, _ = cli("resume", "train")
    assert "Go on with more time: autotune resume train --time 3m --trials 10\n" in out
    assert out.count("autotune resume") == 1


def test_a_resume_with_more_time_of_an_ended_study_shows_what_it_runs(cli, tuner, stored):
    stored(result=search_result(status=Status.TOO_SHORT))
    _, _, err = cli("resume", "train", "--time", "3m")
    assert "goes on with study train, which runs this:" in err


def test_a_resume_prints_a_document(cli, tuner, stored):
    stored()
    _, out, _ = cli("resume", "train", "--json", "--quiet")
    assert json.loads(out)["status"] == "improved"


def test_a_resume_streams_its_events_and_ends_with_its_result(cli, tuner, stored):
    stored()
    code, out, _ = cli("resume", "train", "--jsonl", "--quiet")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["event"] for line in lines] == ["trial_finished", "result"]
    assert lines[-1]["status"] == "improved"


def test_a_resume_keeps_what_the_search_required(cli, tuner, stored):
    stored(require_gain=True)
    tuner.result = search_result(status=Status.NO_GAIN, best=BASELINE, speedup=None)
    assert cli("resume", "train")[0] == 7


def test_a_gain_in_doubt_is_said_first_and_uncertain_where_a_gain_was_required(cli, tuner, stored):
    stored(require_gain=True)
    tuner.result = search_result(doubt="In doubt: the finals say 7.15x, and single trials said 1.38x.")
    code, out, _ = cli("resume", "train")
    assert code == 8
    assert out.startswith("In doubt: the finals say 7.15x")
    stored("other")
    assert cli("resume", "other")[0] == 0


def test_a_gain_beside_load_names_the_load_and_the_spread_of_the_rounds(cli, tuner, stored):
    stored()
    steadiness = (Steadiness(trial=0, num_rounds=3, spread=0.012), Steadiness(trial=19, num_rounds=3, spread=0.2))
    load = "others kept up to 1.0 of 2 cores busy in 6 of 6 runs"
    tuner.result = search_result(beside_load=load, finalists=steadiness)
    _, out, _ = cli("resume", "train")
    assert f"as yours, measured beside other load: {load}.\n" in out
    assert "Between rounds of the finals the rates differ: yours by 1.2%, trial 19 by 20.0%." in out
    _, document, _ = cli("resume", "train", "--json", "--quiet")
    assert json.loads(document)["finalists"][1] == {"trial": 19, "num_rounds": 3, "spread": 0.2}
    assert json.loads(document)["beside_load"] == load


def test_a_resume_in_another_folder_says_where_the_script_is(cli, tuner, stored, folder, tmp_path_factory, monkeypatch):
    stored(command=(sys.executable, "train.py"))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    tuner.result = search_result(config=str(folder / "autotune.yaml"))
    storage = str(folder / "studies" / "autotune.db")
    _, out, _ = cli("resume", "train", "--storage", storage)
    assert f"cd {folder} && autotune run train.py\n" in out
    assert f"--storage {storage}\n" in out


@pytest.mark.parametrize("verb", ["resume", "best", "export", "studies show", "studies delete"])
def test_an_unknown_study_is_a_usage_error_that_knows_the_closest_name(cli, tuner, stored, verb):
    stored("train")
    code, out, err = cli(*verb.split(), "trian")
    assert (code, out) == (2, "")
    assert "holds no study 'trian'" in err and "Did you mean 'train'?" in err


@pytest.mark.parametrize(
    "words", [["resume", "x"], ["best", "x"], ["export", "x"], ["studies"], ["studies", "show", "x"]]
)
def test_a_missing_database_is_not_made(cli, tuner, folder, words):
    code, _, err = cli(*words)
    assert code == 5
    assert "There is no database" in err
    assert not (folder / "studies").exists()


def test_the_database_of_the_study_file_is_read(cli, tuner, stored, folder):
    stored()
    (folder / "studies" / "autotune.db").rename(folder / "mine.db")
    (folder / "study.toml").write_text("storage = 'mine.db'\n")
    assert cli("best", "train")[0] == 0


# Best


def test_best_prints_the_settings_the_gain_and_the_config(cli, stored):
    stored(trials=TRIALS, result=search_result())
    code, out, _ = cli("best", "train")
    assert code == 0
    assert out.startswith(
        "study train, improved: trial 19\n"
        "3,118 [3,097, 3,140] samples per second\n"
        "2.41x [2.35, 2.47] the script's own settings\n"
        "peak memory 12.0 GiB of the cap of 16.0 GiB\n"
    )
    assert re.search(r"\nnum_workers +4  \(was 0\)\n", out)
    assert "prefetch_factor" not in out and "All other settings are your script's own" in out
    assert out.endswith("config: /home/ada/photos/autotune.yaml\n")


def test_best_of_a_running_study_is_the_fastest_trial_so_far(cli, stored):
    stored(trials=TRIALS)
    code, out, _ = cli("best", "train")
    assert code == 0
    assert out.startswith("study train, running: trial 1\n2,410 [2,386, 2,434] samples per second\nnot confirmed")
    code, out, _ = cli("best", "train", "--json")
    document = json.loads(out)
    assert (code, document["status"], document["is_final"]) == (0, "running", False)
    assert document["best"]["trial"] == 1 and document["best"]["samples_per_second"] == 2410.0
    assert document["baseline"]["trial"] == 0
    assert document["speedup"] is None
    assert document["trials"] == {"total": 3, "complete": 2, "infeasible": 0, "failed": 1, "gated": 0}


def test_best_as_text_does_not_read_every_trial_of_a_running_study(cli, stored, monkeypatch):
    """What was left out takes all endings, and stands in the document alone: the third trial of the study failed."""
    stored(trials=TRIALS)
    read = []
    endings = Repository.endings
    monkeypatch.setattr(Repository, "endings", lambda *words: read.append(words) or endings(*words))
    assert cli("best", "train")[0] == 0 and not read
    assert cli("best", "train", "--json")[0] == 0 and read


def test_best_of_a_finished_study_is_the_document_of_its_search(cli, stored):
    stored(trials=TRIALS, result=search_result())
    _, out, _ = cli("best", "train", "--json")
    assert json.loads(out) == {**search_result().document(), "is_final": True}


def test_best_before_the_first_trial_says_so(cli, stored):
    stored()
    code, out, _ = cli("best", "train")
    assert (code, out) == (0, "study train, running: nothing was measured yet.\n")


@pytest.mark.parametrize(("status", "code"), [(Status.NO_FEASIBLE, 3), (Status.ALL_FAILED, 4), (Status.NO_GAIN, 0)])
def test_best_of_a_study_without_one_has_the_exit_code_of_its_search(cli, stored, status, code):
    best = BASELINE if status is Status.NO_GAIN else None
    stored(result=search_result(status=status, best=best, speedup=None, config=None))
    assert cli("best", "train")[0] == code


# Export


def test_export_of_a_file_prints_it_in_another_form(cli, folder):
    (folder / "autotune.yaml").write_text(config_text(tuned_config(), "yaml"))
    assert cli("export", "autotune.yaml") == (0, config_text(tuned_config(), "yaml"), "")
    _, out, _ = cli("export", "autotune.yaml", "--to", "json")
    assert json.loads(out)["settings"]["num_workers"] == 4
    _, out, _ = cli("export", "autotune.yaml", "--to", "env")
    assert "OMP_NUM_THREADS=4\n" in out


def test_export_of_a_study_takes_the_config_that_it_wrote(cli, stored, folder):
    (folder / "tuned.toml").write_text(config_text(tuned_config(provenance_study="train"), "toml"))
    stored(result=search_result(config="tuned.toml"))
    code, out, _ = cli("export", "train", "--to", "json")
    assert code == 0
    assert json.loads(out)["provenance"]["study"] == "train"


def test_export_does_not_take_the_config_of_another_study_for_this_ones(cli, stored, folder):
    (folder / "tuned.yaml").write_text(config_text(tuned_config(provenance_study="later"), "yaml"))
    stored(result=search_result(config="tuned.yaml"))
    code, out, err = cli("export", "train")
    assert (code, out) == (2, "")
    assert "now holds the config of study 'later'" in err


def test_export_of_an_unfinished_study_says_how_to_finish_it(cli, stored):
    stored(trials=TRIALS)
    code, _, err = cli("export", "train")
    assert code == 2
    assert "has written no tuned config" in err and "autotune resume train" in err


def test_export_writes_a_file_whose_end_gives_the_form(cli, folder):
    (folder / "autotune.yaml").write_text(config_text(tuned_config(), "yaml"))
    code, out, err = cli("export", "autotune.yaml", "--out", "new/a.toml")
    assert (code, out, err) == (0, "", "Written: new/a.toml\n")
    assert read_config(folder / "new" / "a.toml") == tuned_config()
    assert cli("export", "autotune.yaml", "--out", "a.env")[0] == 0
    assert (folder / "a.env").read_text() == cli("export", "autotune.yaml", "--to", "env")[1]


@pytest.mark.parametrize("name", ["taken.json", "taken.env"])
def test_export_overwrites_nothing_of_others_unless_forced(cli, folder, name):
    (folder / "autotune.yaml").write_text(config_text(tuned_config(), "yaml"))
    (folder / name).write_text("mine")
    code, _, err = cli("export", "autotune.yaml", "--out", name)
    assert code == 2
    assert "is already there" in err and (folder / name).read_text() == "mine"
    assert cli("export", "autotune.yaml", "--out", name, "--force")[0] == 0
    assert (folder / name).read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "xml"], "'xml' is not a form of a tuned config"),
        (["--to", "json", "--out", "a.yaml"], "--to json and --out a.yaml do not go together"),
    ],
)
def test_export_refuses_forms_that_are_not(cli, folder, words, message):
    (folder / "autotune.yaml").write_text(config_text(tuned_config(), "yaml"))
    code, out, err = cli("export", "autotune.yaml", *words)
    assert (code, out) == (2, "")
    assert message in err


def test_export_of_a_missing_file_is_no_search_for_a_study(cli):
    code, _, err = cli("export", "missing.yaml")
    assert code == 2
    assert "missing.yaml does not exist" in err


# Studies


@pytest.mark.parametrize("words", [["studies"], ["studies", "list"]])
def test_studies_are_listed_with_their_standing(cli, stored, folder, words):
    stored("first", trials=TRIALS, result=search_result())
    stored("second", trials=TRIALS[:2])
    stored("third")
    code, out, _ = cli(*words)
    assert code == 0
    header, *rows = out.splitlines()
    assert header.split() == ["STUDY", "STATUS", "TRIALS", "BEST", "RATIO", "AGE", "SCRIPT"]
    script, age = str(folder / "train.py"), format_age((datetime.now(UTC) - CREATED).total_seconds()).split()
    assert sorted(row.split() for row in rows) == [
        ["first", "improved", "3", "3,118", "samples/s", "2.41x", *age, script],
        ["second", "running", "2", "2,410", "samples/s", "~2.41x", *age, script],
        ["third", "running", "0", "-", "-", *age, script],
    ]


def test_of_a_script_whose_samples_nobody_counts_steps_are_listed_and_shown(cli, stored):
    stored(trials=TRIALS[:2], facts=script_facts(loader=None))
    for words in (["studies"], ["studies", "show", "train"], ["best", "train"], ["report", "train", "--out", "-"]):
        out = cli(*words)[1]
        assert ("steps per second" in out or "steps/s" in out) and "samples/s" not in out, words


def test_studies_as_a_document(cli, stored):
    stored(trials=TRIALS, result=search_result())
    for words in (["studies", "--json"], ["studies", "list", "--json"]):
        document = json.loads(cli(*words)[1])
        assert document["studies"][0]["study"] == "train"
        assert document["studies"][0]["num_trials"] == 3
        assert document["studies"][0]["is_live"] is False
        assert document["studies"][0]["best_samples_per_second"] == 3118.0
        assert (document["studies"][0]["speedup"], document["studies"][0]["ratio_so_far"]) == (2.41, None)
        assert document["studies"][0]["age_s"] >= 0.0


def test_a_study_that_is_searched_is_called_so(cli, stored, folder):
    stored()
    with Repository.open(resolve_url("", folder)) as repository:
        repository.acquire_lease("train", Owner.this_process(), now=datetime.now(UTC))
    assert "searching" in cli("studies")[1]
    assert json.loads(cli("studies", "--json")[1])["studies"][0]["is_live"] is True


def test_an_empty_database_says_so(cli, stored, folder):
    Repository.open(resolve_url("", folder)).close()
    assert cli("studies") == (0, "The database holds no study.\n", "")


def test_options_before_the_verb_are_not_silently_ignored(cli, stored):
    stored()
    code, _, err = cli("studies", "--json", "list")
    assert code == 2
    assert "--storage and --json go after the verb" in err


def test_a_study_that_has_ended_is_shown_with_its_result(cli, stored):
    stored(trials=TRIALS, result=search_result(status=Status.NO_GAIN, best=BASELINE, speedup=None))
    _, out, _ = cli("studies", "show", "train")
    assert out.startswith("study train: no gain\n")
    assert "\n  result   No settings were found that are faster than yours" in out
    assert "  no gain  " in cli("studies")[1]


def test_a_study_is_shown_without_its_secrets(cli, stored):
    stored(trials=TRIALS)
    code, out, _ = cli("studies", "show", "train")
    assert code == 0
    assert "python train.py --api-key ***" in out
    assert "left out compile: no compiler" in out
    assert "    1  ok                 2,410   2.41x" in out
    assert "hunter2" not in out
    _, out, _ = cli("studies", "show", "train", "--json")
    document = json.loads(out)
    assert "hunter2" not in out
    assert [trial["outcome"] for trial in document["trials"]] == ["ok", "ok", "crashed"]
    assert document["refused"] == {"compile": "no compiler"}


def test_a_study_says_where_the_time_of_its_trials_went(cli, stored):
    slow = measured(1000.0, durations_s={"start": 4.0, "warm_up": 6.0, "window": 30.0}, start_reason="no token=hunter2")
    stored(trials=(trial_record(0, NATURAL, slow), trial_record(1, TUNED, slow)))
    _, out, _ = cli("studies", "show", "train")
    said = "of 1 min 20 s, 1 min 12 s were spent measuring: start 8.0 s, warm-up 12 s, windows 1 min 0 s"
    assert f"  trials   {said}\n" in out
    _, out, _ = cli("studies", "show", "train", "--json")
    document = json.loads(out)
    assert document["seconds_by_part"] == {"start": 8.0, "warm-up": 12.0, "windows": 60.0}
    assert document["trials"][1]["durations_s"] == slow.durations_s
    assert "hunter2" not in out


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_a_study_is_deleted_after_a_yes(cli, stored, folder, monkeypatch, answer):
    stored(trials=TRIALS)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    code, out, err = cli("studies", "delete", "train")
    assert (code, out) == (0, "")
    assert "Delete study 'train' with 3 trials (running)? [y/N]" in err
    assert names(folder) == []


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yess\n"])
def test_a_study_is_not_deleted_without_a_yes(cli, stored, folder, monkeypatch, answer):
    stored()
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    code, _, err = cli("studies", "delete", "train")
    assert code == 2
    assert "was not deleted" in err and "--yes" in err
    assert names(folder) == ["train"]


def test_yes_asks_nothing(cli, stored, folder):
    stored("a")
    stored("b")
    assert cli("studies", "delete", "a", "--yes")[0] == 0
    assert names(folder) == ["b"]


@pytest.mark.parametrize("parent", [f"autotune-{os.getuid()}", "home"])
def test_no_folder_that_the_database_names_is_removed_with_its_study(cli, stored, folder, parent):
    stored()
    named = folder / parent / "abc"
    named.mkdir(parents=True)
    with Repository.open(resolve_url("", folder)) as repository:
        record = repository.study("train")
        repository.save_probe(
            "train",
            facts=record.facts,
            script_settings=record.script_settings,
            refused=(),
            memory_cap_bytes=1,
            layer_folder=str(named),
        )
    assert cli("studies", "delete", "train", "--yes")[0] == 0
    assert named.is_dir()
