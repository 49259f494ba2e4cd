"""Whatever a file or a flag holds: a value, or one of our errors with a sentence; bounded in number and in time."""

from __future__ import annotations

import json
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.emit.tuned_config import read_config
from autotune.errors import AutotuneError
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.runner.reports import read_log_tail, read_progress, read_ranks
from autotune.settings import GROUP_OF_FIELD, Settings
from autotune.space.derive import derive_space
from autotune.spec import SearchSpec
from autotune.store.url import mask_url, resolve_url
from autotune.study.jobs import Jobs
from autotune.study.target import make_target
from autotune.study_file.resolve import resolve
from autotune.study_file.search_options import KEYS
from autotune.verdict.judge import Ending, judge, judge_probe
from tests.unit.emit.example import tuned_config
from tests.unit.facts import cpu_machine, script_facts, search_spec

# The deadline is per example, and generous for a busy machine; the number of examples bounds the whole.
fuzz = settings(max_examples=150, deadline=timedelta(seconds=5), suppress_health_check=[HealthCheck.too_slow])


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    )


toml_values = nested(st.booleans() | st.integers() | st.floats() | st.text(max_size=20))
plain_values = nested(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20))
range_texts = st.text(alphabet="0123456789.,-+eE aftrue_%xnb", max_size=16) | st.text(max_size=12)
setting_names = st.sampled_from([*GROUP_OF_FIELD, "storage", "split", "knobs", ""])


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "train.py").write_text("")
        yield Path(made)


def is_refused_or(check: Any, *arguments: Any, **options: Any) -> Any:
    """What the call gives back; None when it refuses with one of our errors, whose sentence is no dump."""
    try:
        return check(*arguments, **options)
    except AutotuneError as error:
        assert error.message
        assert len(str(error)) < 20_000
        return None


def asked(folder: Path, flags: dict[str, Any] | None = None, variables: dict[str, str] | None = None) -> Any:
    return is_refused_or(resolve, flags or {}, None, environ=variables or {}, cwd=folder)


# The study file


@fuzz
@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_study_file_or_refused(folder, content):
    (folder / "study.toml").write_bytes(content)
    asked(folder, {"script": "train.py"})
    (folder / "study.toml").unlink()


@fuzz
@given(values=st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), toml_values, max_size=5))
def test_any_values_of_any_keys_are_a_spec_or_refused(folder, values):
    from unittest import mock

    file = folder / "study.toml"
    file.write_text("")
    with mock.patch("autotune.study_file.study_toml.tomllib.loads", return_value=values):
        resolved = asked(folder, {"script": "train.py"})
    file.unlink()
    assert resolved is None or isinstance(resolved.spec, SearchSpec)


@fuzz
@given(
    variables=st.dictionaries(
        st.sampled_from([f"AUTOTUNE_{key.upper()}" for key in KEYS]), st.text(max_size=16), max_size=4
    )
)
def test_any_variables_are_a_spec_or_refused(folder, variables):
    variables.pop("AUTOTUNE_STUDY_FILE", None)
    asked(folder, {"script": "train.py"}, variables)


# --set, --fix and --map


@fuzz
@given(
    ranges=st.lists(st.tuples(setting_names, range_texts), max_size=3),
    fixed=st.lists(st.tuples(setting_names, range_texts), max_size=2),
    maps=st.lists(st.tuples(setting_names, st.text(max_size=10) | st.just("--x={}")), max_size=2),
    effective_batch=st.sampled_from(["fixed", "free", "1..64", "0..0"]) | st.text(max_size=6),
)
def test_any_wishes_lead_to_a_space_or_are_refused(folder, ranges, fixed, maps, effective_batch):
    flags = {
        "script": "train.py",
        "set": [f"{name}={text}" for name, text in ranges],
        "fix": [f"{name}={text}" for name, text in fixed],
        "map": [f"{name}={text}" for name, text in maps],
        "effective_batch": effective_batch,
    }
    resolved = asked(folder, flags)
    if resolved is None:
        return
    space = is_refused_or(derive_space, script_facts(), cpu_machine(), resolved.spec)
    if space is not None:
        params = space.params(space.script_settings.canonical(device_is_cpu=True))
        assert space.why_not(space.settings(params)) is None


@fuzz
@given(text=st.text(max_size=40) | st.from_regex(r"(sqlite|postgresql|mysql)://[^\x00]{0,30}", fullmatch=True))
def test_any_text_is_a_database_or_refused_and_shown_without_a_password(folder, text):
    before = set(folder.iterdir())
    is_refused_or(resolve_url, text, folder)
    mask_url(text)
    assert set(folder.iterdir()) == before


# The tuned config


def read_back(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8", errors="surrogatepass")
    is_refused_or(read_config, path)
    path.unlink()


@fuzz
@given(content=st.text(max_size=200), suffix=st.sampled_from(["yaml", "toml", "json"]))
def test_any_text_is_a_tuned_config_or_refused(folder, content, suffix):
    read_back(folder / f"read.{suffix}", content)


@fuzz
@given(data=st.data(), value=plain_values)
def test_a_tuned_config_with_any_value_anywhere_is_read_or_refused(folder, data, value):
    from autotune.protocol.codec import to_plain

    document = to_plain(tuned_config())
    places = [(document, key) for key in document]
    places += [(inner, key) for inner in document.values() if isinstance(inner, dict) for key in inner]
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = value
    read_back(folder / "read.json", json.dumps(document))


# What a trial leaves


def job() -> TrialJob:
    spec = search_spec()
    jobs = Jobs(
        spec=spec,
        target=make_target(spec, cpu_machine().device),
        facts=script_facts(),
        script_settings=Settings(batch_size=64),
    )
    return jobs.trial(Settings(batch_size=64))


JOB = job()
BLOCK = {
    "phase": "window",
    "num_steps": 10,
    "num_micro_batches": 10,
    "num_samples": 640.0,
    "duration_s": 0.1,
    "data_wait_s": 0.01,
}
REPORT = {"rank": 0, "world_size": 1, "status": "measured", "blocks": [BLOCK] * 10, "num_steps": 100}
fields_of_a_report = st.sampled_from([*REPORT, "peak_reserved_bytes", "observed", "facts", "error", "compute"])
figures_of_a_block = st.sampled_from([name for name in BLOCK if name != "phase"])
numbers = st.integers() | st.floats() | st.just(-1) | st.just(1e308)


def judged(folder: Path, text: bytes, *, name: str = "rank-0.json") -> None:
    """Reads and judges a report as the tuner does; nothing but a verdict comes of it."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        paths = TrialPaths(Path(made))
        paths.results.mkdir()
        (paths.results / name).write_bytes(text)
        paths.progress.write_bytes(text)
        paths.log.write_bytes(text)
        ranks, unreadable = read_ranks(paths)
        read_progress(paths)
        assert "\0" not in read_log_tail(paths)
    for ending in (
        Ending(exit_code=0, signal=None),
        Ending(exit_code=None, signal=9),
        Ending(exit_code=1, signal=None),
    ):
        verdict = judge(JOB, ending, ranks, unreadable)
        assert verdict.outcome.is_complete is (verdict.measurement is not None)
        judge_probe(JOB, ending, ranks, unreadable)


@fuzz
@given(text=st.binary(max_size=200))
def test_any_bytes_in_place_of_a_report_have_a_verdict(folder, text):
    judged(folder, text)


@fuzz
@given(
    changes=st.dictionaries(
        st.sampled_from([*REPORT, "peak_reserved_bytes", "observed", "facts"]), plain_values, max_size=3
    )
)
def test_a_report_with_any_values_has_a_verdict(folder, changes):
    judged(folder, json.dumps({**REPORT, **changes}).encode())


@fuzz
@given(
    blocks=st.lists(st.fixed_dictionaries({}, optional={key: numbers for key in BLOCK if key != "phase"}), max_size=12)
)
def test_a_report_with_any_figures_in_its_blocks_has_a_verdict(folder, blocks):
    judged(folder, json.dumps({**REPORT, "blocks": [{**BLOCK, **block} for block in blocks]}).encode())


def test_a_job_is_what_a_search_runs():
    assert JOB.mode is Mode.TRIAL
