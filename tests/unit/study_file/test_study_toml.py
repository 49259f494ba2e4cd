from pathlib import Path

import pytest

from autotune.errors import ConfigError
from autotune.spec import DEFAULT_STORAGE
from autotune.study_file.study_toml import find_study_file, rebase_storage, resolve_storage


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_a_file_there_is_none(tmp_path):
    assert find_study_file(tmp_path, {}) is None


def test_study_toml_comes_before_pyproject(tmp_path):
    write(tmp_path / "pyproject.toml", "[tool.autotune]\nseed = 1\n")
    assert find_study_file(tmp_path, {}).values == {"seed": 1}
    write(tmp_path / "study.toml", "seed = 2\n")
    assert find_study_file(tmp_path, {}).values == {"seed": 2}


def test_a_pyproject_without_our_table_is_no_study_file(tmp_path):
    write(tmp_path / "pyproject.toml", "[project]\nname = 'x'\n[tool.ruff]\n")
    assert find_study_file(tmp_path, {}) is None


def test_a_file_is_asked_for_by_flag_before_variable(tmp_path):
    write(tmp_path / "a.toml", "seed = 1\n")
    write(tmp_path / "b.toml", "seed = 2\n")
    variables = {"AUTOTUNE_STUDY_FILE": "b.toml"}
    assert find_study_file(tmp_path, variables).values == {"seed": 2}
    assert find_study_file(tmp_path, variables, "a.toml").values == {"seed": 1}


def test_a_file_that_was_asked_for_must_be_there(tmp_path):
    with pytest.raises(ConfigError, match=r"other\.toml cannot be read: No such file"):
        find_study_file(tmp_path, {}, "other.toml")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"seed = ", "study.toml is not well-formed TOML: .*at end of document"),
        (b"seed = 1\nseed = 2\n", "study.toml is not well-formed TOML: .*line 2"),
        (b"\xff\xfe", "study.toml is not well-formed TOML: .*utf-8"),
        (b"x = " + b"[" * 100_000, "study.toml is not well-formed TOML"),
        (b"#" * (1 << 21), "study.toml is larger than"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_named(tmp_path, content, words):
    (tmp_path / "study.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        find_study_file(tmp_path, {})


def test_our_part_of_pyproject_must_be_a_table(tmp_path):
    write(tmp_path / "pyproject.toml", "[tool]\nautotune = 3\n")
    with pytest.raises(ConfigError, match=r"\[tool.autotune\] of pyproject.toml is not a table"):
        find_study_file(tmp_path, {})


def test_the_database_is_the_flags_then_the_variables_then_the_files_then_the_default(tmp_path):
    write(tmp_path / "study.toml", "storage = 'file.db'\n")
    environ = {"AUTOTUNE_STORAGE": "variable.db"}
    assert resolve_storage("flag.db", environ=environ, cwd=tmp_path) == "flag.db"
    assert resolve_storage(None, environ=environ, cwd=tmp_path) == "variable.db"
    assert resolve_storage(None, environ={}, cwd=tmp_path) == "file.db"
    assert resolve_storage(None, environ={}, cwd=tmp_path / "..") == DEFAULT_STORAGE


def test_a_database_in_the_file_must_be_text(tmp_path):
    write(tmp_path / "study.toml", "storage = 3\n")
    with pytest.raises(ConfigError, match=r"study.toml: storage 3 is not text"):
        resolve_storage(None, environ={}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a.db", "/there/a.db"),
        ("/b/a.db", "/b/a.db"),
        ("sqlite:///studies/a.db", "sqlite:////there/studies/a.db"),
        ("sqlite:////b/a.db", "sqlite:////b/a.db"),
        ("sqlite:///a.db?timeout=3", "sqlite:////there/a.db?timeout=3"),
        ("sqlite+pysqlite:///a.db", "sqlite+pysqlite:////there/a.db"),
        ("sqlite:///file:a.db", "sqlite:///file:a.db"),
        ("postgresql://user@host/database", "postgresql://user@host/database"),
    ],
)
def test_a_relative_database_in_a_file_is_beside_that_file(written, meant):
    assert rebase_storage(written, Path("/there"), Path("/here")) == meant
    assert rebase_storage(written, Path("/here"), Path("/here")) == written
