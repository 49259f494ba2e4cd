from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from autotune.errors import StoreError
from autotune.spec import DEFAULT_STORAGE
from autotune.store.url import make_folder, mask_url, network_file_system, resolve_url, sqlite_path, url_without_secrets

MOUNTS = """\
22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:44 / /mnt/our\\040team rw,relatime shared:5 - nfs4 files:/export rw,vers=4.2
31 30 254:1 / /mnt/our\\040team/scratch rw - xfs /dev/nvme0n1 rw
32 27 0:50 / /home/ada/far rw - fuse.sshfs ada@far: rw
33 27 0:51 / /layers rw - fuse.fuse-overlayfs overlay rw
34 27 0:52 / /twice rw - ext4 /dev/vdb rw
35 27 0:53 / /twice rw - lustre mgs:/fs rw
"""


def test_a_plain_path_is_an_sqlite_file_below_the_working_directory(tmp_path: Path) -> None:
    url = resolve_url("deep/er/my.db", tmp_path)
    assert url == f"sqlite:///{tmp_path}/deep/er/my.db"
    assert not (tmp_path / "deep" / "er" / "my.db").exists()


def test_nothing_means_the_default_storage(tmp_path: Path) -> None:
    assert resolve_url("", tmp_path) == resolve_url(DEFAULT_STORAGE, tmp_path)
    assert sqlite_path(resolve_url("", tmp_path)) == tmp_path / "studies" / "autotune.db"


@pytest.mark.parametrize("text", ["sqlite:///my.db", "sqlite+pysqlite:///my.db"])
def test_a_relative_sqlite_url_is_made_absolute(tmp_path: Path, text: str) -> None:
    assert sqlite_path(resolve_url(text, tmp_path)) == tmp_path / "my.db"


def test_an_absolute_path_stays_and_resolving_twice_changes_nothing(tmp_path: Path) -> None:
    url = resolve_url(str(tmp_path / "a b.db"), Path("/"))
    assert sqlite_path(url) == tmp_path / "a b.db"
    assert resolve_url(url, Path("/")) == url


def test_the_home_directory_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    assert sqlite_path(resolve_url("~/my.db", tmp_path)) == tmp_path / "ada" / "my.db"


@pytest.mark.parametrize("name", ["100% c%20.db", "a#b.db", "{x}.db", "a:b@c.db", "Gr\u00f6\u00dfe.db", "a+b&c=d.db"])
def test_any_file_name_is_kept(tmp_path: Path, name: str) -> None:
    assert sqlite_path(resolve_url(name, tmp_path)) == tmp_path / name


def test_options_of_an_sqlite_url_are_kept(tmp_path: Path) -> None:
    url = make_url(resolve_url("sqlite:///file:my.db?mode=ro&uri=true", tmp_path))
    assert url.database == f"file:{tmp_path}/my.db"
    assert dict(url.query) == {"mode": "ro", "uri": "true"}


@pytest.mark.parametrize(
    ("text", "driver"),
    [
        ("postgresql://ada@db/tuning", "postgresql+psycopg"),
        ("postgres://ada@db/tuning", "postgresql+psycopg"),
        ("mysql://ada@db/tuning", "mysql+pymysql"),
        ("mariadb://ada@db/tuning", "mariadb+pymysql"),
        ("postgresql+psycopg2://ada@db/tuning", "postgresql+psycopg2"),
    ],
)
def test_a_server_without_a_driver_gets_ours(text: str, driver: str) -> None:
    url = make_url(resolve_url(text, Path("/nowhere")))
    assert (url.drivername, url.username, url.host, url.database) == (driver, "ada", "db", "tuning")


def test_the_password_of_a_server_is_kept() -> None:
    url = make_url(resolve_url("postgresql://ada:p%40ss%2Fword@db:5433/tuning?sslmode=require", Path("/")))
    assert url.password == "p@ss/word"
    assert url.port == 5433
    assert dict(url.query) == {"sslmode": "require"}


NO_DATABASES = (
    *("oracle://db/tuning", "journal:///x.log", "http://example.org", "nosuch+driver://db", "postgresql:/db/x"),
    *("postgresql://ada@db:port/x", "sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"),
)


@pytest.mark.parametrize("text", NO_DATABASES)
def test_what_cannot_hold_a_study_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StoreError):
        resolve_url(text, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_refused_url_does_not_show_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        resolve_url("postgresql://ada:s3cret@db:port/x", tmp_path)
    assert "s3cret" not in str(caught.value)
    assert "ada:***@db" in str(caught.value)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder"):
        resolve_url(str(tmp_path), tmp_path)


def test_a_folder_is_made_when_it_is_asked_for_and_not_by_naming_the_file(tmp_path: Path) -> None:
    url = resolve_url("new/folder/my.db", tmp_path)
    assert list(tmp_path.iterdir()) == []
    make_folder(url)
    make_folder(url)
    assert (tmp_path / "new" / "folder").is_dir()


def test_a_server_has_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(resolve_url("postgresql://ada@db/tuning", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/my\.db.*a file is in its place"):
        make_folder(resolve_url("file/my.db", tmp_path))
    with pytest.raises(StoreError, match="null"):
        make_folder(resolve_url("a\x00b/my.db", tmp_path))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:s3cret@db:5432/x", "postgresql://ada:***@db:5432/x"),
        ("postgresql://ada:p@ss/w?rd@db/x", "postgresql://ada:***@db/x"),
        ("postgresql://ada:12/3@db/x", "postgresql://ada:***@db/x"),
        ("postgresql://ada:5?@db/x", "postgresql://ada:***@db/x"),
        ("postgresql://db:5432/x?application_name=a", "postgresql://db:5432/x?application_name=a"),
        ("mysql://ada:@db/x", "mysql://ada:***@db/x"),
        ("postgresql://ada@db/x?password=s3cret&sslmode=require", "postgresql://ada@db/x?password=***&sslmode=require"),
        ("postgresql://db/x?sslPassword=s3cret&api_key=s3cret", "postgresql://db/x?sslPassword=***&api_key=***"),
        ("postgresql://ada@/x?host=/tmp/a", "postgresql://ada@/x?host=/tmp/a"),
        ("sqlite:////home/ada:b@c/x.db", "sqlite:////home/ada:b@c/x.db"),
        ("sqlite:///x.db?timeout=5", "sqlite:///x.db?timeout=5"),
        ("postgresql:/ada:s3cret@db/x", "postgresql:***@db/x"),
        ("studies/autotune.db", "studies/autotune.db"),
        ("", ""),
    ],
)
def test_a_shown_url_has_no_secret(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@given(st.text(min_size=1))
def test_no_password_however_odd_is_sent_and_the_rest_stays(password: str) -> None:
    url = resolve_url(
        f"postgresql://ada:{quote(password, safe='')}@db:5433/x?sslpassword=s3cret&sslmode=require", Path("/")
    )
    assert url_without_secrets(url) == "postgresql+psycopg://ada@db:5433/x?sslmode=require"


def test_a_file_and_a_socket_are_sent_as_they_are(tmp_path: Path) -> None:
    for text in ("my studies.db", "postgresql://ada@/x?host=/run/pg"):
        url = resolve_url(text, tmp_path)
        assert make_url(url_without_secrets(url)) == make_url(url)


@given(st.text(min_size=1))
def test_no_password_however_odd_is_shown(password: str) -> None:
    assert mask_url(f"postgresql://ada:{password}@db/x") == "postgresql://ada:***@db/x"


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/mnt/our team/studies", "nfs4"),
        ("/mnt/our team/scratch", None),
        ("/mnt/our teammate", None),
        ("/home/ada/far/away", "fuse.sshfs"),
        ("/home/ada", None),
        ("/layers", None),
        ("/twice", "lustre"),
    ],
)
def test_a_network_file_system_is_found_by_the_innermost_mount(tmp_path: Path, folder: str, kind: str | None) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert network_file_system(f"sqlite:///{folder}/my.db", mounts) == kind


def test_a_link_into_a_network_file_system_is_followed(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:44 / {tmp_path}/remote rw - cifs //files rw\n")
    (tmp_path / "remote").mkdir()
    (tmp_path / "studies").symlink_to(tmp_path / "remote")
    assert network_file_system(f"sqlite:///{tmp_path}/studies/my.db", mounts) == "cifs"


def test_a_server_has_no_file_system_and_a_system_without_mounts_knows_none(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("27 1 0:44 / / rw - nfs files:/ rw\n")
    assert network_file_system("postgresql+psycopg://db/x", mounts) is None
    assert network_file_system("sqlite:////x.db", mounts) == "nfs"
    assert network_file_system("sqlite:////x.db", tmp_path / "missing") is None
    mounts.write_text("nonsense\n\n1 2 3 - \n")
    assert network_file_system("sqlite:////x.db", mounts) is None
