"""The page of claims: all of them, with what real runs said."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.spec import SearchSpec
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.store.url import resolve_url
from tests.street.claims import claim_of, document, page, read_claims
from tests.unit.model.test_verification import verification
from tests.unit.report.examples import search_result


def row(script: str, claimed: float, **values: Any) -> dict[str, Any]:
    common = {"script": script, "device": "gpu", "repository": "a/b", "at": "2026-11-22T13:10:01Z", "outcome": "tuned"}
    return {**common, "claimed": claimed, "claimed_low": 0.9 * claimed, "claimed_high": 1.1 * claimed, **values}


def results(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def test_every_claim_is_listed_also_those_that_did_not_hold_or_were_never_run(tmp_path: Path) -> None:
    path = results(
        tmp_path / "rows.jsonl",
        row("good", 2.0, rates={"script": [100.0, 101.0], "run": [199.0, 203.0]}, autotune="abc1234"),
        row("bad", 3.0, rates={"script": [100.0, 101.0], "run": [70.0, 69.0]}),
        row("never", 1.5),
        {"script": "kept", "outcome": "no gain", "claimed": None},
    )
    text = page(read_claims([path]))
    assert "* 3 claims of a gain over 3 scripts." in text
    assert "* Without a real run: 1." in text
    assert "* Slower by 5 % or more in the real runs: 1: a/b bad." in text
    assert "| a/b good | gpu | 2026-11-22 | abc1234 | 2.00x [1.80, 2.20] | 2.00x [" in text
    assert "| yes | held |" in text and "| no | slower |" in text
    assert "| a/b never | gpu | 2026-11-22 | not noted | 1.50x [1.35, 1.65] | no real run |  |  |" in text


def test_two_searches_of_a_script_are_two_claims_and_a_partial_line_is_none(tmp_path: Path) -> None:
    partial = row("one", 2.0, rates={"script": [100.0], "run": [200.0]}, is_partial=True)
    whole = row("one", 2.0, rates={"script": [100.0, 100.0], "run": [200.0, 200.0]})
    later = row("one", 2.1, at="2026-11-23T10:00:00Z")
    assert len(read_claims([results(tmp_path / "rows.jsonl", partial, whole, later)])) == 2


def test_a_single_pair_has_a_ratio_without_an_interval() -> None:
    claim = claim_of(row("one", 2.0, real=1.9, rates={"script": [100.0], "run": [190.0]}))
    assert (claim.real, claim.verification, claim.is_within) == (1.9, None, True)


def test_searches_of_a_comparison_are_claims_unless_nothing_was_faster(tmp_path: Path) -> None:
    gain = {"ratio": 2.3, "low": 1.9, "high": 2.9}
    models = {
        "small": {"our_search": {"speedup": gain}, "ratios": {"ours / default": 3.0}},
        "large": {"our_search": {"speedup": None}, "ratios": {"ours / default": 1.0}},
        "none": {"ratios": {}},
    }
    path = tmp_path / "rival.json"
    path.write_text(json.dumps({"date": "2026-11-23", "models": models}))
    [claim] = read_claims([path])
    assert (claim.script, claim.real, claim.is_within) == ("tests.benchmarks.rival small", 3.0, False)


def test_studies_of_a_database_are_claims_with_each_of_their_verifications(tmp_path: Path) -> None:
    database = tmp_path / "studies.db"
    with Repository.open(resolve_url(str(database), tmp_path)) as repository:
        for name, found in (("verified", (verification(),)), ("unverified", ())):
            spec = SearchSpec(command=("python", "train.py"), script="train.py", cwd=str(tmp_path), study=name)
            created_at = datetime(2026, 11, 20, tzinfo=UTC)
            repository.create_study(StudyRecord(name=name, spec=spec, fingerprint={}, created_at=created_at))
            result = replace(search_result(study=name), verifications=found)
            repository.set_status(name, "improved", result.document())
    text = page(read_claims([database]))
    figures = "2.41x [2.35, 2.47] | 1.38x [1.30, 1.46] | no |"
    assert f"| train.py (study verified) |  | 2026-11-22 | 0.1.0 | {figures}" in text
    assert "| train.py (study unverified) |  | 2026-11-20 | not noted | 2.41x [2.35, 2.47] | no real run |" in text


def test_the_record_of_claims_gives_the_same_page_as_the_results_themselves(tmp_path: Path) -> None:
    rows = results(
        tmp_path / "rows.jsonl",
        row("good", 2.0, rates={"script": [100.0, 101.0], "run": [199.0, 203.0]}),
        row("single", 2.0, real=1.9, rates={"script": [100.0], "run": [190.0]}),
        row("never", 1.5),
    )
    claims = read_claims([rows])
    record = results(tmp_path / "claims.jsonl", *map(document, claims))
    assert page(read_claims([record])) == page(read_claims([record, rows])) == page(claims)
