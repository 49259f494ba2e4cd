"""`autotune compare`: words and document for two studies, two configs, and one of each."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autotune.emit.tuned_config import config_text
from autotune.model.search_result import Status

from ..unit.emit.example import tuned_config
from ..unit.report.examples import BASELINE, BEST, search_result


def test_two_studies_are_compared_in_one_sentence_and_a_table(cli, stored):
    slower = replace(BEST, samples_per_second=1560.0, interval=(1550.0, 1570.0))
    stored("old", result=search_result(speedup=(1.2, 1.19, 1.21), best=slower))
    stored("new", result=search_result())
    code, out, err = cli("compare", "old", "new")
    assert (code, err) == (0, "")
    assert out.startswith("new trains 2.01x [1.96, 2.06] as many samples per second as old.\n")
    assert "against its baseline  1.20x [1.19, 1.21]    2.41x [2.35, 2.47]\n" in out
    assert "samples per second    1,560 [1,550, 1,570]  3,118 [3,097, 3,140]\n" in out
    assert out.endswith("By their gains over the same baseline, which was measured in turns with each.\n")
    _, out, _ = cli("compare", "new", "old")
    assert out.startswith("new trains 2.01x [1.96, 2.06] as many samples per second as old.\n"), "the faster is named"


def test_noise_is_called_noise(cli, stored):
    stored("old", result=search_result())
    stored("new", result=search_result(speedup=(2.40, 2.30, 2.50)))
    _, out, _ = cli("compare", "old", "new")
    assert out.startswith("No difference beyond the noise: new trains 1.00x [0.95, 1.04] as fast as old.")


def test_a_comparison_is_a_document_too(cli, stored):
    stored("old", result=search_result(status=Status.NO_GAIN, best=BASELINE, speedup=None))
    stored("new", result=search_result())
    _, out, _ = cli("compare", "old", "new", "--json")
    document = json.loads(out)
    assert document["ratio"] == pytest.approx({"value": 2.41, "low": 2.35, "high": 2.47})
    assert document["is_beyond_noise"] is True and document["by"] == "gain"
    assert document["second"]["settings"]["num_workers"] == 4


def test_configs_of_another_machine_are_refused_by_field(cli, folder):
    config = tuned_config()
    (folder / "here.yaml").write_text(config_text(config, "yaml"))
    there = tuned_config(provenance_host=replace(config.provenance.host, device="NVIDIA H100", torch="2.14.0"))
    (folder / "there.toml").write_text(config_text(there, "toml"))
    assert cli("compare", "here.yaml", "here.yaml")[0] == 0
    code, out, err = cli("compare", "here.yaml", "there.toml")
    assert (code, out) == (2, "")
    assert "device: NVIDIA H200, not NVIDIA H100" in err and "torch: 2.13.0, not 2.14.0" in err


def test_an_unfinished_study_is_no_side_of_a_comparison(cli, stored):
    stored("old", result=search_result())
    stored("new")
    code, _, err = cli("compare", "old", "new")
    assert code == 2 and "'new' (running) has no finals yet" in err and "autotune resume new" in err


@pytest.mark.parametrize(("allowed", "code"), [("5%", 9), ("20", 9), ("60%", 0)])
def test_a_regression_beyond_noise_and_allowance_ends_with_a_code_of_its_own(cli, stored, allowed, code):
    slower = replace(BEST, samples_per_second=1560.0, interval=(1550.0, 1570.0))
    stored("old", result=search_result())
    stored("new", result=search_result(speedup=(1.2, 1.19, 1.21), best=slower))
    assert cli("compare", "old", "new", "--max-regression", allowed)[0] == code
    assert cli("compare", "new", "old", "--max-regression", allowed)[0] == 0, "a gain is no regression"


def test_noise_is_no_regression(cli, stored):
    stored("old", result=search_result())
    stored("new", result=search_result(speedup=(2.30, 2.10, 2.50)))
    assert cli("compare", "old", "new", "--max-regression", "1%")[0] == 0


@pytest.mark.parametrize("percentage", ["much", "-5%", "100%", "nan"])
def test_an_impossible_allowance_is_refused(cli, stored, percentage):
    stored("old", result=search_result())
    code, out, err = cli("compare", "old", "old", "--max-regression", percentage)
    assert (code, out) == (2, "") and "is no percentage" in err


def log_of(*rates, config):
    lines = [{"autotune": "watch", "config": str(config)}]
    lines += [{"samples_per_second": rate, "data_wait_fraction": 0.1} for rate in rates]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_watched_run_is_held_against_its_config(cli, folder):
    (folder / "tuned.yaml").write_text(config_text(tuned_config(), "yaml"))
    earlier = log_of(9999.0, 9999.0, config=folder / "tuned.yaml")
    (folder / "log.jsonl").write_text(earlier + log_of(2650.0, 2660.0, 2655.0, config=folder / "tuned.yaml") + '{"sam')
    code, out, _ = cli("compare", "tuned.yaml", "log.jsonl", "--max-regression", "10%")
    assert code == 9 and "tuned.yaml trains 1.17x" in out
    assert cli("compare", "tuned.yaml", "log.jsonl", "--max-regression", "20%")[0] == 0


@pytest.mark.parametrize("text", ["", "{}\n", '{"autotune": "watch", "config": "x.yaml"}\n{"samples_per_second": 1}\n'])
def test_a_log_without_two_minutes_is_refused(cli, folder, text):
    (folder / "tuned.yaml").write_text(config_text(tuned_config(), "yaml"))
    (folder / "log.jsonl").write_text(text)
    code, _, err = cli("compare", "tuned.yaml", "log.jsonl")
    assert code == 2 and "fewer than 2 minutes" in err
