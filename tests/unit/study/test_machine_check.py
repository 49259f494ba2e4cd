from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.host import DeviceInfo
from autotune.runner.devices import DeviceDetails, DeviceState
from autotune.sandbox import protection_choice
from autotune.study import machine_check
from autotune.study.machine_check import Status
from autotune.units import GIB, MIB

CUDA = DeviceInfo(kind="cuda", name="NVIDIA H200", total_bytes=140 * GIB, free_bytes=139 * GIB, uuid="GPU-1")
FAST = DeviceDetails(
    nvml="13.580.1",
    sm_clock_mhz=345,
    max_sm_clock_mhz=1980,
    pcie_generation=1,
    max_pcie_generation=5,
    pcie_width=16,
    max_pcie_width=16,
    is_persistent=True,
    has_ecc=True,
)
FIT = {"torch": "2.11.0+cu130", "cuda_build": "13.0", "python": "3.12.3", "num_devices": 1, "is_available": True}


def findings(monkeypatch, *, devices=(), torch=FIT, reasons=(), **machine):
    """Findings by name on a machine that is fit but for these."""
    state = DeviceState(utilization=0.0, sm_clock_mhz=1980.0, temperature_c=40.0, reasons=reasons)
    values = {
        "usable_cpus": 8.0,
        "available_memory_bytes": 60 * GIB,
        "total_memory_bytes": 64 * GIB,
        "shared_memory_free_bytes": 8 * GIB,
        **{name: value for name, value in machine.items() if hasattr(machine_check, name)},
    }
    for name, value in values.items():
        monkeypatch.setattr(machine_check, name, lambda value=value: value)
    monkeypatch.setattr(machine_check.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(machine_check.os, "getloadavg", lambda: (machine.get("load", 0.1), 0.0, 0.0), raising=False)
    monkeypatch.setattr(machine_check.platform, "system", lambda: machine.get("system", "Linux"))
    monkeypatch.setattr(
        protection_choice.layer_permission,
        "is_permitted",
        machine.get("is_permitted", lambda *_: machine.get("permits", True)),
    )
    monkeypatch.setattr(protection_choice, "is_landlock_permitted", lambda: machine.get("has_landlock", True))
    monkeypatch.setattr(machine_check.devices, "cuda_devices", lambda: tuple(devices))
    monkeypatch.setattr(machine_check.devices, "state", machine.get("state", lambda info: state))
    monkeypatch.setattr(machine_check.devices, "details", machine.get("details", lambda info: FAST))
    monkeypatch.setattr(machine_check, "_ask_torch", lambda: dict(torch))
    monkeypatch.setattr(machine_check, "LITTLE_DISK_BYTES", machine.get("little_disk", 0))
    return {finding.name: finding for finding in machine_check.examine()}


def test_a_machine_that_is_fit_has_only_good_findings(monkeypatch):
    found = findings(monkeypatch, devices=[CUDA])
    assert {finding.status for finding in found.values()} == {Status.OK}
    assert not any(finding.remedy for finding in found.values())
    assert "NVIDIA H200" in found["device"].text


def test_a_machine_without_a_device_is_no_problem(monkeypatch):
    found = findings(monkeypatch, torch={**FIT, "cuda_build": "", "num_devices": 0, "is_available": False})
    assert found["device"].status is found["torch"].status is Status.OK
    assert "CPU" in found["device"].text


@pytest.mark.parametrize(
    ("name", "machine", "remedy"),
    [
        ("cores", {"usable_cpus": 2.0}, "affinity"),
        ("load", {"load": 6.0}, "End what else runs"),
        ("memory", {"available_memory_bytes": 2 * GIB}, "End programs"),
        ("/dev/shm", {"shared_memory_free_bytes": 64 * MIB}, "--shm-size"),
        ("/dev/shm", {"shared_memory_free_bytes": None}, "tmpfs"),
        ("disk", {"little_disk": 1 << 60}, "TMPDIR"),
        ("protection", {"permits": False}, "SYS_ADMIN"),
    ],
)
def test_what_makes_a_search_worse_is_a_warning_with_its_remedy(monkeypatch, name, machine, remedy):
    found = findings(monkeypatch, **machine)[name]
    assert found.status is Status.WARNING
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        ({**FIT, "cuda_build": "", "num_devices": 0, "is_available": False}, "built for the CPU"),
        ({**FIT, "num_devices": 0, "is_available": False}, "too old for CUDA 13.0"),
        ({"error": "torch cannot be imported: No module named 'torch'"}, "Install torch"),
    ],
)
def test_a_torch_that_cannot_use_the_device_is_a_problem(monkeypatch, torch, words):
    found = findings(monkeypatch, devices=[CUDA], torch=torch)["torch"]
    assert found.status is Status.PROBLEM
    assert words in found.remedy


def test_neighbours_and_a_clock_that_is_held_down_are_named(monkeypatch):
    crowded = replace(CUDA, num_other_processes=2)
    assert "--share-gpu" in findings(monkeypatch, devices=[crowded])["device"].remedy
    slow = findings(monkeypatch, devices=[CUDA], reasons=("hardware thermal slowdown",))["device"]
    assert slow.status is Status.WARNING and "thermal" in slow.text


def test_a_system_without_proc_is_a_problem(monkeypatch):
    assert findings(monkeypatch, system="Darwin")["system"].status is Status.PROBLEM


def test_a_machine_without_a_temporary_folder_is_a_problem(monkeypatch):
    def there_is_none():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(machine_check.tempfile, "gettempdir", there_is_none)
    found = findings(monkeypatch)
    assert found["disk"].status is Status.PROBLEM and "TMPDIR" in found["disk"].remedy
    assert found["protection"].status is Status.WARNING


def test_the_protection_that_trials_will_have_is_named(monkeypatch):
    assert "copy-on-write layers" in findings(monkeypatch)["protection"].text
    assert "Landlock" in findings(monkeypatch, permits=False)["protection"].text
    found = findings(monkeypatch, permits=False, has_landlock=False)["protection"]
    assert found.status is Status.PROBLEM
    assert "neither" in found.text and "--unprotected" in found.remedy and "docker run" in found.remedy


def test_protection_is_tried_over_the_folders_of_a_search_started_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = findings(monkeypatch, is_permitted=lambda scratch, folders=(): tmp_path not in folders)["protection"]
    assert found.text.startswith("a search in this folder has Landlock")
    monkeypatch.chdir("/")
    found = findings(monkeypatch)["protection"]
    assert found.status is Status.PROBLEM and found.text.startswith("The working directory / cannot be protected")


def test_a_file_torch_in_the_working_directory_is_not_run(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("open('run', 'w').close()\n__version__ = 'evil'\n")
    monkeypatch.chdir(tmp_path)
    assert machine_check._ask_torch().get("torch") != "evil"
    assert not (tmp_path / "run").exists()


def test_the_set_up_of_a_device_is_shown(monkeypatch):
    device = replace(CUDA, driver="580.95.05")
    text = findings(monkeypatch, devices=[device])["set-up"].text
    assert text == (
        "GPU-1, driver 580.95.05, NVML 13.580.1, clock 345 of 1980 MHz, PCIe 1 x16 of 5 x16, persistence on, ECC on"
    )


@pytest.mark.parametrize(
    ("change", "word", "remedy"),
    [
        ({"pcie_width": 4}, "x4 of 5 x16", "fewer lanes"),
        ({"is_persistent": False}, "persistence off", "nvidia-smi -pm 1"),
        ({"has_mig": True}, "divided into MIG parts", "CUDA_VISIBLE_DEVICES=MIG-"),
    ],
)
def test_a_set_up_that_costs_speed_is_a_warning(monkeypatch, change, word, remedy):
    setup = replace(FAST, **change)
    found = findings(monkeypatch, devices=[CUDA], details=lambda info: setup)["set-up"]
    assert found.status is Status.WARNING and word in found.text and remedy in found.remedy


def test_a_mig_part_is_named(monkeypatch):
    found = findings(monkeypatch, devices=[CUDA], details=lambda info: replace(FAST, is_mig=True))["set-up"]
    assert found.status is Status.OK and "a MIG part" in found.text


def test_a_slower_sibling_is_named_by_its_uuid(monkeypatch):
    setups = {"GPU-1": FAST, "GPU-2": replace(FAST, max_sm_clock_mhz=1755)}
    found = findings(
        monkeypatch,
        devices=[CUDA, replace(CUDA, uuid="GPU-2")],
        details=lambda info: setups[info.uuid],
        torch={**FIT, "num_devices": 2},
    )
    assert found["sibling"].text == "GPU-2 has a lower clock than GPU-1, of the same name"


def test_a_sibling_with_a_clock_held_down_is_named_by_its_uuid(monkeypatch):
    hot = DeviceState(utilization=0.0, sm_clock_mhz=900.0, temperature_c=92.0, reasons=("thermal slowdown",))
    states = {"GPU-1": hot, "GPU-2": replace(hot, reasons=())}
    found = findings(
        monkeypatch,
        devices=[CUDA, replace(CUDA, uuid="GPU-2")],
        state=lambda info: states[info.uuid],
        torch={**FIT, "num_devices": 2},
    )
    assert found["sibling"].text == "the clock of GPU-1 is held down now, unlike GPU-2's: thermal slowdown"
    assert "UUID" in found["sibling"].remedy
