"""What must be the same for trials to be comparable, and how a difference is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import UsageError
from autotune.host import DeviceInfo
from autotune.space.derive import derive_space
from autotune.study.fingerprint import (
    check_unchanged,
    module_digests,
    probed_fingerprint,
    study_fingerprint,
    what_changed,
)
from autotune.study.target import make_target
from autotune.units import GIB
from tests.unit.facts import cpu_machine, loader_facts, script_facts, search_spec

SITE = make_target(search_spec(), cpu_machine().device)


def test_a_study_goes_on_where_nothing_changed(tmp_path):
    spec = search_spec(cwd=str(tmp_path))
    target = make_target(spec, cpu_machine().device)
    assert what_changed(study_fingerprint(spec, target), study_fingerprint(spec, target)) == ()


def test_what_changed_is_said(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("one")
    spec = search_spec(cwd=str(tmp_path))
    stored = study_fingerprint(spec, make_target(spec, cpu_machine().device))
    script.write_text("two")
    other = DeviceInfo(kind="cpu", name="Another CPU", total_bytes=16 * GIB, free_bytes=12 * GIB)
    changes = what_changed(stored, study_fingerprint(spec, make_target(spec, other)))
    assert "the script's file has changed" in changes
    assert "device: Another CPU, was CPU" in changes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"maps": (("storage", "--storage={}"),)}, "--map has changed"),
        ({"samples_per_step": 32.0}, "--samples-per-step has changed"),
        ({"command": ("python", "train.py", "--width", "2")}, "the command has changed"),
    ],
)
def test_what_changes_the_measurement_is_said(change, words):
    stored = study_fingerprint(search_spec(), SITE)
    assert what_changed(stored, study_fingerprint(search_spec(**change), SITE)) == (words,)


@pytest.mark.parametrize(
    "change", [{"memory_cap": "8GiB"}, {"effective_batch": "free"}, {"ranges": (("num_workers", "0..4"),)}, {"seed": 3}]
)
def test_what_only_changes_the_search_is_no_obstacle(change):
    stored = study_fingerprint(search_spec(), SITE)
    assert what_changed(stored, study_fingerprint(search_spec(**change), SITE)) == ()


def test_another_python_is_said():
    stored = study_fingerprint(search_spec(), SITE)
    other = replace(SITE, host=replace(SITE.host, python="3.99"))
    assert what_changed(stored, study_fingerprint(search_spec(), other)) == (f"python: 3.99, was {SITE.host.python}",)


def test_the_users_own_modules_are_known_wherever_python_looks_for_them_first(tmp_path):
    (tmp_path / "src" / "pkg" / "deep").mkdir(parents=True)
    for name in ("train.py", "beside.py", "pkg/__init__.py", "pkg/deep/layers.py"):
        (tmp_path / "src" / name).write_text(name)
    (tmp_path / "here.py").write_text("here")
    spec = search_spec(cwd=str(tmp_path), script=str(tmp_path / "src" / "train.py"))
    names = ("torch", "beside", "here", "pkg", "no_such_module")
    before = module_digests(spec, names)
    assert sorted(before) == ["beside", "here", "pkg"]
    (tmp_path / "src" / "pkg" / "deep" / "layers.py").write_text("changed")
    after = module_digests(spec, names)
    assert {name for name in before if before[name] != after[name]} == {"pkg"}


def space_print(**facts):
    found = script_facts(**facts)
    return probed_fingerprint(search_spec(), found, derive_space(found, cpu_machine(), search_spec()))


def test_a_search_space_that_another_probe_found_is_compared():
    host = study_fingerprint(search_spec(), SITE)
    stored = {**host, **space_print()}
    assert what_changed(stored, {**host, **space_print()}) == ()
    assert what_changed(stored, host) == ()  # not known without a probe
    changes = what_changed(stored, {**host, **space_print(loader=loader_facts(batch_size=32, num_workers=7))})
    assert "the script's own batch_size is 32, was 64" in changes
    assert "the script's own num_workers is 7, was 0" in changes
    assert len(changes) == 2
    (change, *_) = what_changed(stored, {**host, **space_print(world_size=2)})
    assert change == "the number of processes that train together is 2, was 1"
    changes = what_changed(stored, {**host, **space_print(knobs=(("storage", "jpeg"),))})
    assert any("knobs" in words for words in changes)


def test_a_refusal_offers_to_take_over_only_where_something_fits():
    host = study_fingerprint(search_spec(), SITE)
    stored = {**host, **space_print()}
    with pytest.raises(UsageError) as caught:
        check_unchanged("train", stored, {**host, **space_print(loader=loader_facts(batch_size=32))})
    assert "--take-over train" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        check_unchanged("train", stored, {**host, "script": "another"})
    assert "--take-over" not in caught.value.hint
