"""`autotune verify` with a tuner that only notes what it is asked."""

import json
import sys
from dataclasses import replace
from types import ModuleType

import pytest

import autotune.study
from autotune.emit.tuned_config import config_text
from autotune.errors import EveryTrialFailedError
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from autotune.study import trust_record

from ..unit.emit.example import tuned_config
from ..unit.model.test_verification import verification
from ..unit.report.examples import search_result


@pytest.fixture
def verifier(monkeypatch):
    """Stands in for `autotune.study.verifying`; `found` is what the runs show."""
    module = ModuleType("autotune.study.verifying")
    module.asked, module.found, module.error = [], verification(), None

    def verify(study, **options):
        module.asked.append((study, options["num_pairs"], options["window_s"]))
        if module.error is not None:
            raise module.error
        return search_result(study=study, verifications=(module.found,)), True

    module.verify = verify
    monkeypatch.setitem(sys.modules, "autotune.study.verifying", module)
    monkeypatch.setattr(autotune.study, "verifying", module, raising=False)
    return module


@pytest.fixture
def trusted(stored, folder):
    stored(result=search_result())
    with Repository.open(resolve_url("", folder)) as repository:
        trust_record.keep(repository.study("train"))


def test_a_claim_that_holds_ends_with_zero_and_says_both_ratios(cli, verifier, trusted):
    code, out, _ = cli("verify", "train")
    assert code == 0
    assert verifier.asked == [("train", 3, 30.0)]
    assert out.startswith("study train: verified, the claim held\n")
    assert "claimed  1.40x [1.30, 1.50]" in out
    assert "real     1.38x [1.30, 1.46], within the published interval" in out
    assert "pair 1   1.39x: yours 100" in out


@pytest.mark.parametrize(
    ("real", "words"),
    [
        ((0.9, 0.85, 0.95), "the tuned settings are slower"),
        ((1.1, 1.05, 1.15), "the gain is smaller"),
        ((1.1, 0.7, 1.7), "the runs differ too much"),
    ],
)
def test_a_claim_that_does_not_hold_has_an_exit_code_of_its_own(cli, verifier, trusted, real, words):
    verifier.found = verification(real=real)
    code, out, _ = cli("verify", "train", "--pairs", "2", "--seconds", "5")
    assert code == 8
    assert words in out
    assert verifier.asked == [("train", 2, 5.0)]


def test_a_larger_gain_than_claimed_is_no_failure(cli, verifier, trusted):
    verifier.found = verification(real=(1.8, 1.7, 1.9))
    code, out, _ = cli("verify", "train")
    assert code == 0
    assert "above the published interval" in out


def test_the_document_has_every_run(cli, verifier, trusted):
    code, out, _ = cli("verify", "train", "--json", "--quiet")
    document = json.loads(out)
    assert code == 0
    assert (document["study"], document["finding"], document["is_within"]) == ("train", "held", True)
    assert [turn["samples_per_second"] for turn in document["turns"]] == [100.0, 139.0]
    assert document["is_in_config"]


def test_without_a_name_the_study_of_the_folders_config_is_verified(cli, verifier, trusted, folder):
    (folder / "autotune.yaml").write_text(config_text(tuned_config(provenance_study="train"), "yaml"))
    assert cli("verify")[0] == 0
    assert verifier.asked[0][0] == "train"


def test_without_a_name_and_a_config_the_error_says_what_to_type(cli, verifier):
    code, _, err = cli("verify")
    assert code == 2
    assert "autotune verify STUDY" in err


def test_a_run_that_fails_is_an_error_without_a_traceback(cli, verifier, trusted):
    verifier.error = EveryTrialFailedError("A run under the tuned settings could not be counted.", "Look at it.")
    code, _, err = cli("verify", "train")
    assert code == 4
    assert "could not be counted" in err and "Traceback" not in err


def test_an_interrupted_verification_says_that_nothing_was_stored(cli, verifier, trusted):
    verifier.error = InterruptedError("stop")
    code, _, err = cli("verify", "train")
    assert code == 130
    assert "nothing was stored" in err


def test_best_and_show_and_report_tell_of_the_newest_verification(cli, stored, folder):
    older = verification(real=(1.0, 0.9, 1.1))
    stored(result=replace(search_result(), verifications=(older, verification())))
    _, best, _ = cli("best", "train")
    assert "verified, the claim held: 1.38x [1.30, 1.46] by 1 pairs of runs of 30 s" in best
    _, shown, _ = cli("studies", "show", "train")
    assert "verified, the claim held" in shown
    _, document, _ = cli("best", "train", "--json")
    assert [found["finding"] for found in json.loads(document)["verifications"]] == ["fell_short", "held"]
    for form in ("md", "html"):
        _, page, _ = cli("report", "train", "--format", form, "--out", "-")
        assert "verified, the claim held" in page and "1.38" in page
