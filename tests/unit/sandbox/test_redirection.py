"""Where a path is, when what is written goes to a layer."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from autotune.sandbox.redirection.redirect_layers import RedirectLayers


class Ground:
    """A covered folder with a few files, under a trial's and a study's layer."""

    def __init__(self, root: Path) -> None:
        self.user, self.outside = root / "user", root / "outside"
        (self.user / "sub").mkdir(parents=True)
        self.outside.mkdir()
        for name in ("a", "sub/b"):
            (self.user / name).write_text(name)
        self.trial, self.study = root / "trial", root / "study"
        self.layers = RedirectLayers([str(self.user)], [str(self.trial), str(self.study)])
        self.layers.prepare()

    def real(self, name: str) -> str:
        return str(self.user / name)

    def place(self, name: str) -> str | None:
        found = self.layers.look(self.real(name))
        assert found is not None and found.is_covered
        return found.place

    def in_layer(self, layer: Path, name: str) -> Path:
        return Path(f"{layer}/files{self.user}", name)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_what_nobody_wrote_is_where_the_user_has_it(ground: Ground) -> None:
    assert ground.place("a") == ground.real("a")
    assert ground.place("missing") is None


def test_a_path_elsewhere_is_left_alone(ground: Ground) -> None:
    assert ground.layers.look("/usr/bin/env") is None
    assert ground.layers.look(str(ground.user) + "-not-covered") is None


def test_a_changed_file_is_a_copy_and_the_users_own_stays(ground: Ground) -> None:
    own = ground.layers.own_place(ground.real("sub/b"))
    assert Path(own) == ground.in_layer(ground.trial, "sub/b")
    Path(own).write_text("changed")
    assert ground.place("sub/b") == own
    assert (ground.user / "sub" / "b").read_text() == "sub/b"


def test_a_large_file_is_not_copied_in_silence(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.sandbox.redirection.real_places.LARGE_BYTES", 1 << 16)
    monkeypatch.setattr("autotune.sandbox.redirection.real_places.FICLONE", 0)
    (ground.user / "large").write_bytes(bytes(range(256)) * 512)
    with pytest.raises(OSError, match="Read-only file system") as refused:
        ground.layers.own_place(ground.real("large"))
    assert refused.value.errno == errno.EROFS and refused.value.filename == ground.real("large")
    assert ground.place("large") == ground.real("large")
    own = ground.layers.own_place(ground.real("large"), keeps_content=False)
    assert Path(own).read_bytes() == b""


def test_the_nearest_layer_that_has_a_file_is_taken(ground: Ground) -> None:
    for layer in (ground.study, ground.trial):
        path = ground.in_layer(layer, "a")
        path.parent.mkdir(parents=True)
        path.write_text("newer")
        ground.layers.changed()
        assert ground.place("a") == str(path)


def test_what_was_removed_is_not_seen_and_may_be_made_again(ground: Ground) -> None:
    ground.layers.remove(ground.real("a"))
    assert ground.place("a") is None
    assert (ground.user / "a").exists()
    Path(ground.layers.new_place(ground.real("a"))).write_text("again")
    assert ground.place("a") == str(ground.in_layer(ground.trial, "a"))


def test_a_removed_folder_hides_all_below_it_even_when_made_again(ground: Ground) -> None:
    ground.layers.remove(ground.real("sub/b"))
    ground.layers.remove(ground.real("sub"))
    assert ground.place("sub/b") is None
    Path(ground.layers.new_place(ground.real("sub"))).mkdir()
    ground.layers.changed()
    assert ground.layers.names(ground.real("sub")) == []


def test_a_folder_shows_the_names_of_all_layers(ground: Ground) -> None:
    Path(ground.layers.new_place(ground.real("new"))).touch()
    ground.layers.remove(ground.real("a"))
    assert sorted(ground.layers.names(str(ground.user))) == ["new", "sub"]
    assert ground.layers.is_user_folder(ground.real("sub"))
    assert not ground.layers.is_user_folder(str(ground.user))


def test_a_file_in_place_of_a_folder_hides_what_the_folder_held(ground: Ground) -> None:
    ground.layers.remove(ground.real("sub/b"))
    ground.layers.remove(ground.real("sub"))
    Path(ground.layers.new_place(ground.real("sub"))).touch()
    assert ground.place("sub/b") is None
    assert ground.layers.why_missing(ground.real("sub/b")) == errno.ENOTDIR


def test_links_in_a_layer_lead_where_the_script_means(ground: Ground) -> None:
    Path(ground.layers.new_place(ground.real("link"))).symlink_to("sub")
    ground.layers.changed()
    found = ground.layers.look(ground.real("link/b"))
    assert found is not None
    assert (found.real, found.place) == (ground.real("sub/b"), ground.real("sub/b"))


def test_links_that_lead_out_are_followed_out(ground: Ground) -> None:
    (ground.outside / "file").touch()
    Path(ground.layers.new_place(ground.real("link"))).symlink_to(ground.outside)
    ground.layers.changed()
    found = ground.layers.look(ground.real("link/file"))
    assert found is not None and not found.is_covered
    assert found.place == str(ground.outside / "file")


def test_links_that_lead_in_are_followed_in(ground: Ground) -> None:
    (ground.outside / "link").symlink_to(ground.user)
    found = ground.layers.look(str(ground.outside / "link" / "a"))
    assert found is not None and found.is_covered
    assert found.real == ground.real("a")


def test_links_in_a_circle_are_an_error(ground: Ground) -> None:
    Path(ground.layers.new_place(ground.real("circle"))).symlink_to("circle")
    ground.layers.changed()
    with pytest.raises(OSError, match="symbolic links") as raised:
        ground.layers.look(ground.real("circle/x"))
    assert raised.value.errno == errno.ELOOP


def test_a_new_file_needs_a_folder_to_be_in(ground: Ground) -> None:
    with pytest.raises(FileNotFoundError):
        ground.layers.new_place(ground.real("missing/x"))
    with pytest.raises(NotADirectoryError):
        ground.layers.new_place(ground.real("a/x"))


def test_what_another_process_did_is_seen_at_the_next_look(ground: Ground) -> None:
    assert ground.place("sub/b") == ground.real("sub/b")
    other = RedirectLayers([str(ground.user)], [str(ground.trial), str(ground.study)])
    other.own_place(ground.real("sub/b"))
    assert ground.place("sub/b") == str(ground.in_layer(ground.trial, "sub/b"))


def test_the_script_knows_a_place_in_a_layer_by_its_own_name(ground: Ground) -> None:
    assert ground.layers.seen_as(str(ground.in_layer(ground.study, "x"))) == ground.real("x")
    assert ground.layers.seen_as("/usr") == "/usr"
