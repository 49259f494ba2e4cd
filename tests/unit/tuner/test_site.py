from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.host import DeviceInfo
from autotune.tuner.site import make_site, study_fingerprint, what_changed
from autotune.units import GIB
from tests.unit.facts import cpu_machine, gpu_machine, search_spec


def test_the_default_cap_is_of_what_is_free():
    assert make_site(search_spec(), cpu_machine().device).cap_bytes == int(0.8 * 12 * GIB)
    assert make_site(search_spec(), gpu_machine().device).cap_bytes == int(0.9 * 79 * GIB)


def test_a_percentage_is_of_the_devices_total():
    assert make_site(search_spec(memory_cap="50%"), gpu_machine().device).cap_bytes == 40 * GIB


def test_a_cap_above_the_device_is_refused():
    with pytest.raises(UsageError, match="more than the"):
        make_site(search_spec(memory_cap="100GiB"), gpu_machine().device)


def test_the_allocators_share_leaves_room_for_what_lies_outside_it():
    site = make_site(search_spec(memory_cap="40GiB"), gpu_machine().device)
    assert 0.45 < site.cap_fraction < 0.5
    assert make_site(search_spec(), cpu_machine().device).cap_fraction == 1.0


def test_a_cap_that_the_context_alone_fills_is_refused():
    site = make_site(search_spec(memory_cap="512MiB"), gpu_machine().device)
    with pytest.raises(UsageError, match="leaves nothing"):
        _ = site.cap_fraction


def test_a_study_goes_on_where_nothing_changed(tmp_path):
    spec = search_spec(cwd=str(tmp_path))
    site = make_site(spec, cpu_machine().device)
    assert what_changed(study_fingerprint(spec, site), study_fingerprint(spec, site)) == ()


def test_what_changed_is_said(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("one")
    spec = search_spec(cwd=str(tmp_path))
    stored = study_fingerprint(spec, make_site(spec, cpu_machine().device))
    script.write_text("two")
    other = DeviceInfo(kind="cpu", name="Another CPU", total_bytes=16 * GIB, free_bytes=12 * GIB)
    changes = what_changed(stored, study_fingerprint(spec, make_site(spec, other)))
    assert "the script's file has changed" in changes
    assert "device: Another CPU, was CPU" in changes
