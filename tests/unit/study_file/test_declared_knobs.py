"""A name that is no setting is found before anything is started."""

import pytest

from autotune.errors import ConfigError, UsageError
from autotune.study_file.resolve import resolve


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text("import torch\n")
    return tmp_path


def asked(folder, **flags):
    return resolve({"script": "train.py", **flags}, None, environ={}, cwd=folder).spec


@pytest.mark.parametrize("table", ["set", "fix"])
def test_a_misspelt_setting_is_refused_with_the_right_one(folder, table):
    with pytest.raises(UsageError, match=f"--{table} num_worker is no setting.*did you mean num_workers"):
        asked(folder, **{table: ["num_worker=2"]})


def test_a_name_that_stands_nowhere_in_the_source_is_refused_with_what_to_do(folder):
    with pytest.raises(UsageError, match=r"storage is no setting.*--map storage=--storage=\{\}"):
        asked(folder, set=["storage=npy,jpeg"])


def test_all_unknown_names_are_named_at_once(folder):
    with pytest.raises(UsageError, match=r"--set aa .*--set bb "):
        asked(folder, set=["aa=1,2", "bb=1,2"])


def test_a_name_in_the_file_is_refused_as_the_files(folder):
    (folder / "study.toml").write_text('set = { storage = "a,b" }\n')
    with pytest.raises(ConfigError, match=r"study\.toml: set\.storage is no setting"):
        asked(folder)


def test_a_mapped_knob_needs_no_word_in_the_source(folder):
    spec = asked(folder, set=["storage=folder,lmdb"], map=["storage=--storage={}"])
    assert (spec.ranges, spec.maps) == ((("storage", "folder,lmdb"),), (("storage", "--storage={}"),))


def test_a_knob_that_the_script_declares_is_left_to_the_probe(folder):
    (folder / "train.py").write_text("import autotune\ncfg = autotune.load(storage='jpeg')\n")
    assert asked(folder, set=["storage=npy"]).ranges == (("storage", "npy"),)


def test_a_knob_that_a_module_beside_the_script_declares_is_left_to_the_probe(folder):
    (folder / "pkg").mkdir()
    (folder / "pkg" / "config.py").write_text("from autotune import load\ncfg = load(storage='jpeg')\n")
    assert asked(folder, set=["storage=npy"]).ranges == (("storage", "npy"),)


def test_a_word_in_an_environment_or_without_autotune_declares_nothing(folder):
    (folder / "other.py").write_text("storage = 1\n")
    (folder / "venv").mkdir()
    (folder / "venv" / "pyvenv.cfg").write_text("")
    (folder / "venv" / "a.py").write_text("import autotune\nstorage = 1\n")
    with pytest.raises(UsageError, match="storage is no setting"):
        asked(folder, set=["storage=npy"])


def test_a_map_without_values_is_refused(folder):
    with pytest.raises(UsageError, match=r"--map storage maps no setting.*--set storage=a,b"):
        asked(folder, map=["storage=--storage={}"])
    with pytest.raises(UsageError, match=r"--map num_worker .*did you mean num_workers"):
        asked(folder, map=["num_worker=--workers={}"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batch_size=--batch", r"has no \{\} where the value goes"),
        ("precision.fp8=--fp8", "precision 'fp8' is unknown"),
        ("non_blocking=--async={}", "non_blocking cannot be mapped"),
    ],
)
def test_a_map_that_could_do_nothing_is_refused(folder, text, words):
    with pytest.raises(UsageError, match=words):
        asked(folder, map=[text])


def test_a_map_for_one_value_needs_no_place_for_it(folder):
    assert asked(folder, map=["precision.bf16=--bf16"]).maps == (("precision.bf16", "--bf16"),)


def test_the_knobs_of_another_script_do_not_hold(folder):
    (folder / "study.toml").write_text('script = "other.py"\nset = { storage = "a,b" }\nmap = { storage = "-s {}" }\n')
    assert asked(folder).ranges == ()
