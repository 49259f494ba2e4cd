"""The file system with the dataset is named from the table of mounts."""

from __future__ import annotations

from autotune.report.diagnosis_text import diagnosis_text
from autotune.sandbox.mounts import mount_above

from ..diagnoses import diagnosis, observation
from .test_storage_advice import FILES, storage

TABLE = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:50 / /data rw - nfs4 server:/export rw,vers=4.2
41 40 0:51 / /data/my\\040photos rw - fuse.s3fs s3fs rw
42 22 0:52 / /database rw - tmpfs tmpfs rw
"""


def test_the_deepest_mount_above_a_path_is_named(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    for path, expected in {
        "/home/u/a.jpg": "ext4 on /dev/sda1",
        "/data/a.jpg": "nfs4 on server:/export",
        "/data/my photos/a.jpg": "fuse.s3fs on s3fs",
        "/database/a": "tmpfs on tmpfs",
    }.items():
        mount = mount_above(path, table)
        assert mount is not None and mount.description == expected
    assert mount_above("", table) is None and mount_above("/a", tmp_path / "none") is None


def test_a_diagnosis_tells_mount_cold_share_rates_and_pressure():
    seen = diagnosis(
        observation=observation(
            storage=storage(**FILES, example="/data/a.jpg", cold_share=0.25, cold_read_bytes_per_s=2**20)
        ),
        mount="nfs4 on server:/export",
        io_pressure=0.1,
        disk_bytes_per_s=2.0**21,
    )
    text = " ".join(diagnosis_text(seen).split())
    assert "storage nfs4 on server:/export; 25% of what is read next was outside the page cache" in text
    assert "1.0 MiB/s from a cold cache" in text and "read 2.0 MiB/s from storage" in text
    assert "some task waited for storage in 10% of the time" in text
    assert seen.document()["mount"] == "nfs4 on server:/export" and seen.document()["io_pressure"] == 0.1
