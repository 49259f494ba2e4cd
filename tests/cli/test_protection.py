"""What a search says where nothing protects the user's files."""

import pytest

from autotune.sandbox import protection_choice


@pytest.fixture
def bare(monkeypatch):
    """A system that permits neither overlay mounts nor Landlock."""
    monkeypatch.setattr(protection_choice.layer_permission, "is_permitted", lambda *_: False)
    monkeypatch.setattr(protection_choice.landlock, "version", lambda: 0)


@pytest.mark.parametrize("words", [("search", "train.py"), ("search", "train.py", "--dry-run", "--probe")])
def test_a_search_without_protection_is_refused_before_the_script_runs(bare, folder, cli, words):
    (folder / "train.py").write_text("open('ran', 'w').close()\n")
    code, out, err = cli(*words, "--device", "cpu")
    assert (code, out) == (6, "")
    assert "neither overlay mounts nor Landlock" in err and "docker run" in err and "--unprotected" in err
    assert not (folder / "ran").exists()
    assert "train" not in cli("studies", "list")[1]


def test_a_search_without_protection_goes_on_where_the_user_says_so_and_names_what_was_changed(bare, folder, cli):
    (folder / "kept.txt").write_text("kept")
    (folder / "train.py").write_text(
        "import os; os.system('rm kept.txt; touch ../a0 ../a1 ../a2 ../a3 ../a4'); open('redirected', 'w').close()\n"
    )
    code, _, err = cli("search", "train.py", "--unprotected", "--device", "cpu")
    assert code == 4
    assert "Protection of your files: none" in err
    assert "changed or removed" in err and "kept.txt" in err
    assert not (folder / "redirected").exists()


def test_a_protection_that_is_not_there_is_refused_by_its_name(bare, folder, cli):
    code, _, err = cli("search", "train.py", "--protection", "landlock", "--device", "cpu")
    assert code == 6 and "does not permit Landlock" in err


def test_a_mode_that_is_none_is_a_usage_error(folder, cli):
    code, _, err = cli("search", "train.py", "--protection", "firejail")
    assert code == 2 and "auto, layers, landlock, none" in err
