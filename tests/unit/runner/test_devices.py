"""Devices as NVML shows them, and without it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import HostError, UsageError
from autotune.host import cpu_device
from autotune.runner import devices as devices
from autotune.runner.sm_activity import SmActivity
from autotune.units import GIB


class NVMLError(Exception):
    pass


class NotSupportedError(NVMLError):
    pass


class Nvml(SimpleNamespace):
    """NVML with two devices of one model, whose answers can be changed, by device too, or refused."""

    NVMLError = NVMLError
    NVMLError_NotSupported = NotSupportedError
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, *, has_driver: bool = True) -> None:
        super().__init__(has_driver=has_driver, num_inits=0, refused={}, changed={})

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)
        return lambda *arguments, **options: self._answer(name, *arguments)

    def nvmlInit(self) -> None:  # noqa: N802
        self.num_inits += 1
        if not self.has_driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "600.1"

    def _answer(self, name: str, *arguments: Any) -> Any:
        if name in self.refused:
            raise self.refused[name]
        index = arguments[0] if arguments else 0
        if name == "nvmlDeviceGetHandleByUUID":
            return index.decode() if index.startswith(b"MIG-") else int(index.decode().rpartition("-")[2])
        answers = {
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0, memory=0),
            "nvmlDeviceGetHandleByIndex": index,
            "nvmlDeviceGetName": "NVIDIA H100",
            "nvmlDeviceGetUUID": index if str(index).startswith("MIG-") else f"GPU-{index}",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 * GIB, free=70 * GIB, used=10 * GIB),
            "nvmlDeviceGetGraphicsRunningProcesses": [],
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=41, usedGpuMemory=3 * GIB)],
        }
        changed = self.changed.get(name, answers.get(name))
        return changed(index) if callable(changed) else changed


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    devices.loaded_nvml.cache_clear()
    yield fake
    devices.loaded_nvml.cache_clear()


def test_without_a_driver_there_are_no_devices_and_auto_is_the_cpu(nvml: Nvml) -> None:
    nvml.has_driver = False
    assert devices.cuda_devices() == ()
    assert devices.choose_device("auto").is_cpu
    with pytest.raises(HostError, match="shows 0 CUDA devices"):
        devices.choose_device("cuda")


def test_devices_are_described_in_order(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetName"] = "GPU {}".format
    first, second = devices.cuda_devices()
    assert (first.name, second.name) == ("GPU 0", "GPU 1")
    assert (first.total_bytes, first.free_bytes) == (80 * GIB, 70 * GIB)
    assert (first.uuid, first.capability, first.driver, first.num_other_processes) == ("GPU-0", (9, 0), "600.1", 1)


def test_a_device_is_chosen_by_its_number(nvml: Nvml) -> None:
    assert devices.choose_device("auto").uuid == "GPU-0"
    assert devices.choose_device("cuda").uuid == "GPU-0"
    assert devices.choose_device("cuda:1").uuid == "GPU-1"
    assert devices.choose_device("cpu").is_cpu
    with pytest.raises(HostError, match="cuda:2"):
        devices.choose_device("cuda:2")


def memory_of(*free_gib: float) -> Any:
    """The memory of devices with so much free, in turn."""
    return lambda index: SimpleNamespace(
        total=80 * GIB, free=int(free_gib[index] * GIB), used=int((80 - free_gib[index]) * GIB)
    )


def test_auto_takes_the_device_with_the_most_free_memory(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetMemoryInfo"] = memory_of(40, 70)
    assert devices.choose_device("auto").uuid == "GPU-1"
    nvml.changed["nvmlDeviceGetMemoryInfo"] = memory_of(70.4, 70.6)  # What the driver keeps differs a little.
    assert devices.choose_device("auto").uuid == "GPU-0"


def test_auto_takes_an_unused_device_before_one_with_more_memory(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetMemoryInfo"] = memory_of(79, 79.9)
    nvml.changed["nvmlDeviceGetComputeRunningProcesses"] = lambda index: [] if index == 0 else [SimpleNamespace(pid=41)]
    nvml.changed["nvmlDeviceGetGraphicsRunningProcesses"] = [object()]
    assert devices.choose_device("auto").uuid == "GPU-0"
    nvml.changed["nvmlDeviceGetComputeRunningProcesses"] = lambda index: [] if index == 1 else [SimpleNamespace(pid=41)]
    assert devices.choose_device("auto").uuid == "GPU-1"


def test_of_used_devices_auto_takes_the_one_that_computes_least(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetMemoryInfo"] = memory_of(70, 40)
    nvml.changed["nvmlDeviceGetUtilizationRates"] = lambda index: SimpleNamespace(
        gpu=100 if index == 0 else 3, memory=0
    )
    assert devices.choose_device("auto").uuid == "GPU-1"


def test_ranks_get_the_freest_devices_in_the_order_in_which_they_see_them(nvml: Nvml) -> None:
    nvml.changed.update(nvmlDeviceGetCount=3, nvmlDeviceGetMemoryInfo=memory_of(60, 30, 70))
    assert [each.uuid for each in devices.choose_devices("auto", 2)] == ["GPU-0", "GPU-2"]
    assert [each.uuid for each in devices.choose_devices("auto", 1)] == ["GPU-2"]
    assert [each.uuid for each in devices.choose_devices("cuda:1", 2)] == ["GPU-1"]
    assert [each.uuid for each in devices.choose_devices("auto", 4)] == ["GPU-0", "GPU-1", "GPU-2"]


def test_beside_a_device_only_unused_ones_are_shown_to_a_probe(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetGraphicsRunningProcesses"] = [object()]
    device = devices.choose_device("cuda:0")
    assert devices.idle_beside(device) == ()
    nvml.changed["nvmlDeviceGetComputeRunningProcesses"] = []
    assert [each.uuid for each in devices.idle_beside(device)] == ["GPU-1"]
    assert devices.idle_beside(cpu_device()) == ()


@pytest.mark.parametrize("text", ["gpu", "cuda:x", "cpu:1", "", "cuda:-1", "tpu:0"])
def test_text_that_names_no_device_is_refused(nvml: Nvml, text: str) -> None:
    with pytest.raises(UsageError):
        devices.choose_device(text)


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        ("1,0", ["GPU-1", "GPU-0"]),
        ("1", ["GPU-1"]),
        ("GPU-1", ["GPU-1"]),
        ("0,7,1", ["GPU-0"]),
        ("", []),
        ("-1", []),
        ("MIG-1234", ["MIG-1234"]),
    ],
)
def test_visible_devices_are_taken_as_cuda_takes_them(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, visible: str, uuids: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [device.uuid for device in devices.cuda_devices()] == uuids


@pytest.mark.parametrize(
    ("visible", "asked", "order", "uuid"),
    [
        (None, "auto", None, "GPU-0"),
        (None, "cuda:1", None, None),
        (None, "cuda:1", "FASTEST_FIRST", None),
        (None, "cuda:1", "PCI_BUS_ID", "GPU-1"),
        ("1", "auto", None, None),
        ("1", "auto", "PCI_BUS_ID", "GPU-1"),
        ("1,0", "auto", None, "GPU-1"),
        ("1,0", "cuda:0", None, None),
        ("GPU-1", "auto", None, "GPU-1"),
        ("GPU-1,GPU-0", "cuda:0", None, "GPU-1"),
        ("", "auto", None, "cpu"),
        ("1", "cpu", None, "cpu"),
    ],
)
def test_a_number_that_cuda_counts_otherwise_on_a_machine_of_several_models_is_refused(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, asked: str, order: str | None, uuid: str | None
) -> None:
    nvml.changed["nvmlDeviceGetName"] = ["GeForce RTX 3060", "GeForce RTX 4090"].__getitem__
    for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_DEVICE_ORDER", order)):
        if value is not None:
            monkeypatch.setenv(name, value)
    if uuid is None:
        with pytest.raises(UsageError, match="several models") as refused:
            devices.choose_device(asked)
        assert (
            "CUDA_DEVICE_ORDER=PCI_BUS_ID" in refused.value.hint and "CUDA_VISIBLE_DEVICES=GPU-" in refused.value.hint
        )
    else:
        device = devices.choose_device(asked)
        assert (device.uuid or device.kind) == uuid


def divided(nvml: Nvml, *, parts: int) -> None:
    """Divides device 1 into parts."""
    nvml.changed["nvmlDeviceGetMigMode"] = lambda handle: (1, 1) if handle == 1 else (0, 0)
    nvml.changed["nvmlDeviceGetMaxMigDeviceCount"] = 7
    answer = nvml._answer

    def answers(name: str, *arguments: Any) -> Any:
        if name == "nvmlDeviceGetMigDeviceHandleByIndex":
            if arguments[1] >= parts:
                raise NVMLError("Not Found")
            return f"MIG-{arguments[0]}{arguments[1]}"
        return answer(name, *arguments)

    object.__setattr__(nvml, "_answer", answers)


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ["GPU-0", "MIG-10", "MIG-11"]),
        ("1,0", ["MIG-10", "GPU-0"]),
        ("GPU-1", ["MIG-10"]),
        ("MIG-11", ["MIG-11"]),
    ],
)
def test_a_divided_device_is_shown_as_its_parts(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, uuids: list[str]
) -> None:
    divided(nvml, parts=2)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [device.uuid for device in devices.cuda_devices()] == uuids


def test_a_part_that_does_not_exist_ends_the_list_as_in_cuda(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,MIG-gone,1")
    nvml.refused["nvmlDeviceGetHandleByUUID"] = NVMLError("Not Found")
    assert [device.uuid for device in devices.cuda_devices()] == ["GPU-0"]


def test_of_equally_free_devices_auto_takes_one_with_its_full_clock(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetCurrentClocksEventReasons"] = lambda handle: 0x20 if handle == 0 else 0
    assert devices.choose_device("auto").uuid == "GPU-1"


def test_nvml_is_begun_once_however_often_it_is_asked(nvml: Nvml) -> None:
    device = devices.choose_device("cuda")
    for _ in range(5):
        assert devices.used_bytes(device) == 10 * GIB
    assert nvml.num_inits == 1


def test_what_a_device_does_not_say_is_unknown(nvml: Nvml) -> None:
    nvml.refused = {
        "nvmlDeviceGetCudaComputeCapability": NVMLError("no"),
        "nvmlDeviceGetComputeRunningProcesses": NVMLError("no"),
    }
    device = devices.choose_device("cuda")
    assert device.capability is None
    assert device.num_other_processes == 0


def test_a_device_without_memory_of_its_own_has_the_hosts(nvml: Nvml) -> None:
    nvml.refused = {"nvmlDeviceGetMemoryInfo": NotSupportedError("no")}
    device = devices.choose_device("cuda")
    assert device.total_bytes == cpu_device().total_bytes
    assert devices.used_bytes(device) is None


def test_a_lost_device_takes_the_others_with_it(nvml: Nvml) -> None:
    nvml.refused = {"nvmlDeviceGetHandleByIndex": NVMLError("GPU is lost")}
    assert devices.cuda_devices() == ()


def test_the_cpu_has_no_device_memory(nvml: Nvml) -> None:
    assert devices.used_bytes(cpu_device()) is None
    assert nvml.num_inits == 0


def test_memory_of_nobody_is_a_neighbour_in_another_container(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetComputeRunningProcesses"] = []
    assert devices.cuda_devices()[0].num_other_processes == 1
    nvml.changed["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(
        total=80 * GIB, free=79 * GIB, used=devices.IDLE_BYTES // 2
    )
    assert devices.cuda_devices()[0].num_other_processes == 0


def test_a_desktop_is_no_neighbour(nvml: Nvml) -> None:
    nvml.changed["nvmlDeviceGetComputeRunningProcesses"] = []
    nvml.changed["nvmlDeviceGetGraphicsRunningProcesses"] = [object()]
    assert devices.cuda_devices()[0].num_other_processes == 0


def test_processes_come_with_their_memory_where_it_is_known(nvml: Nvml) -> None:
    device = devices.choose_device("cuda")
    assert devices.processes(device) == {41: 3 * GIB}
    nvml.changed["nvmlDeviceGetComputeRunningProcesses"] = [SimpleNamespace(pid=42, usedGpuMemory=None)]
    assert devices.processes(device) == {42: 0}
    nvml.refused["nvmlDeviceGetComputeRunningProcesses"] = NVMLError("no permission")
    assert devices.processes(device) == {}
    assert devices.processes(cpu_device()) == {}


def test_ranks_train_on_the_first_devices_that_they_see(nvml: Nvml) -> None:
    device = devices.choose_device("cuda:1")
    assert devices.trained_on(device, 1) == (device,)
    assert [each.uuid for each in devices.trained_on(device, 2)] == ["GPU-0", "GPU-1"]
    assert devices.trained_on(cpu_device(), 2) == ()


def test_the_state_of_a_device_has_its_reasons_by_name(nvml: Nvml) -> None:
    nvml.changed.update(
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=40, memory=7),
        nvmlDeviceGetCurrentClocksEventReasons=0x01 | 0x04 | 0x20,
        nvmlDeviceGetClockInfo=1980,
        nvmlDeviceGetTemperature=71,
    )
    found = devices.state(devices.choose_device("cuda"))
    assert found is not None
    assert (found.utilization, found.sm_clock_mhz, found.temperature_c) == (0.4, 1980, 71)
    assert found.reasons == ("power cap", "thermal slowdown")


def test_a_state_lacks_what_the_driver_does_not_say(nvml: Nvml) -> None:
    for name in ("UtilizationRates", "CurrentClocksEventReasons", "ClockInfo", "Temperature"):
        nvml.refused[f"nvmlDeviceGet{name}"] = NotSupportedError("Not Supported")
    nvml.changed["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x40
    found = devices.state(devices.choose_device("cuda"))
    assert found is not None
    assert (found.utilization, found.sm_clock_mhz, found.temperature_c) == (None, None, None)
    assert found.reasons == ("hardware thermal slowdown",)
    assert devices.state(cpu_device()) is None


class Gpm:
    """NVML's counters for whole devices, with a made-up share of busy multiprocessors."""

    def __init__(self, nvml: Nvml, percent: float) -> None:
        self.num_samples, self.num_freed = 0, 0
        nvml.nvmlGpmQueryDeviceSupport = lambda handle: SimpleNamespace(isSupportedDevice=1)
        nvml.nvmlGpmSampleAlloc = self._allocate
        nvml.nvmlGpmSampleGet = lambda handle, sample: None
        nvml.nvmlGpmSampleFree = self._free
        nvml.NVML_GPM_METRICS_GET_VERSION = 1
        nvml.c_nvmlGpmMetricsGet_t = lambda: SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=percent)])
        nvml.nvmlGpmMetricsGet = lambda asked: None

    def _allocate(self) -> object:
        self.num_samples += 1
        return object()

    def _free(self, sample: object) -> None:
        self.num_freed += 1


def test_the_share_of_busy_multiprocessors_needs_two_samples_and_a_device_with_counters(nvml: Nvml) -> None:
    device = devices.choose_device("cuda")
    assert SmActivity(device).share() is None, "this device has no counters"
    counters = Gpm(nvml, 37.5)
    activity = SmActivity(device)
    activity.look()
    assert activity.share() is None
    for _ in range(3):
        activity.look()
    assert activity.share() == 0.375 and counters.num_samples == 2
    activity.close()
    assert counters.num_freed == 2 and activity.share() == 0.375


def test_the_set_up_of_a_device_is_read_and_unknown_answers_are_left_out(nvml: Nvml) -> None:
    nvml.nvmlSystemGetNVMLVersion = lambda: "13.580.1"
    nvml.changed.update(
        nvmlDeviceGetCurrPcieLinkWidth=8,
        nvmlDeviceGetMaxPcieLinkWidth=16,
        nvmlDeviceGetPersistenceMode=0,
        nvmlDeviceGetEccMode=[1, 1],
    )
    nvml.refused["nvmlDeviceGetMigMode"] = NotSupportedError()
    found = devices.details(devices.choose_device("cuda"))
    assert found is not None and found.nvml == "13.580.1"
    assert (found.pcie_width, found.max_pcie_width) == (8, 16)
    assert (found.is_persistent, found.has_ecc, found.has_mig, found.is_mig) == (False, True, None, False)
    assert devices.details(cpu_device()) is None
