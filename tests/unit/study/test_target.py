from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from autotune.errors import HostError, UsageError
from autotune.model.facts import VisibleDevices
from autotune.runner import devices as device_module
from autotune.space.script_settings import script_settings_of
from autotune.study import target as site_module
from autotune.study.jobs import Jobs
from autotune.study.target import make_target, open_target
from autotune.units import GIB
from tests.unit.facts import cpu_machine, gpu_machine, script_facts, search_spec


def test_the_default_cap_is_of_what_is_free():
    assert make_target(search_spec(), cpu_machine().device).cap_bytes == int(0.8 * 12 * GIB)
    assert make_target(search_spec(), gpu_machine().device).cap_bytes == int(0.9 * 79 * GIB)


def test_a_percentage_is_of_the_devices_total():
    assert make_target(search_spec(memory_cap="50%"), gpu_machine().device).cap_bytes == 40 * GIB


def test_a_cap_above_the_device_is_refused():
    with pytest.raises(UsageError, match="more than the"):
        make_target(search_spec(memory_cap="100GiB"), gpu_machine().device)


def test_the_allocators_share_leaves_room_for_what_lies_outside_it():
    target = make_target(search_spec(memory_cap="40GiB"), gpu_machine().device)
    assert 0.45 < target.cap_fraction < 0.5
    assert make_target(search_spec(), cpu_machine().device).cap_fraction == 1.0


def test_a_cap_that_the_context_alone_fills_is_refused():
    target = make_target(search_spec(memory_cap="512MiB"), gpu_machine().device)
    with pytest.raises(UsageError, match="leaves nothing"):
        _ = target.cap_fraction


def test_what_the_probe_held_outside_the_allocator_is_kept_free():
    target = make_target(search_spec(memory_cap="40GiB"), gpu_machine().device)
    small = target.as_probed(script_facts(outside_allocator_bytes=GIB // 4))
    large = target.as_probed(script_facts(outside_allocator_bytes=4 * GIB))
    assert large.cap_fraction < target.cap_fraction < small.cap_fraction
    assert large.cap_fraction * 80 * GIB + 4 * GIB < 40 * GIB
    assert target.as_probed(script_facts()).cap_fraction == target.cap_fraction
    cpu = make_target(search_spec(), cpu_machine().device)
    assert cpu.as_probed(script_facts(outside_allocator_bytes=GIB)) == cpu


def test_on_a_device_the_hosts_memory_has_a_cap_of_its_own():
    assert make_target(search_spec(), cpu_machine().device).host_cap_bytes is None
    host_cap = make_target(search_spec(), gpu_machine().device).host_cap_bytes
    assert host_cap is not None and host_cap > 0


def test_beside_others_no_cap_is_above_what_is_free():
    device = replace(gpu_machine().device, free_bytes=20 * GIB)
    assert make_target(search_spec(memory_cap="50%", share_gpu=True), device).cap_bytes == int(0.9 * 20 * GIB)
    assert make_target(search_spec(memory_cap="10GiB", share_gpu=True), device).cap_bytes == 10 * GIB
    assert make_target(search_spec(memory_cap="50%"), device).cap_bytes == 40 * GIB


@pytest.fixture
def two_devices(monkeypatch):
    first = gpu_machine().device
    second = replace(first, uuid="GPU-2", free_bytes=30 * GIB, num_other_processes=1)
    monkeypatch.setattr(site_module, "choose_devices", lambda asked, num: (first, second)[:num])
    monkeypatch.setattr(site_module, "cuda_devices", lambda: (first, second))
    monkeypatch.setattr(site_module, "idle_beside", lambda device: ())


def test_a_neighbour_on_the_device_of_any_rank_is_one(two_devices):
    assert open_target(search_spec()).cap_bytes == int(0.9 * 79 * GIB)
    with pytest.raises(HostError, match="Another process uses"):
        open_target(search_spec(num_processes_per_node=2))


def test_the_device_with_the_least_room_sets_the_cap_of_all_ranks(two_devices):
    spec = search_spec(num_processes_per_node=2, share_gpu=True)
    assert open_target(spec).cap_bytes == int(0.9 * 30 * GIB)


def test_a_script_that_trains_on_the_cpu_is_measured_there_and_that_is_told():
    told = []
    target = make_target(search_spec(), gpu_machine().device)
    assert target.where_it_trains(script_facts(device="cuda"), search_spec(), told.append) is target and told == []
    on_cpu = target.where_it_trains(script_facts(device="cpu"), search_spec(), told.append)
    assert on_cpu.device.is_cpu and on_cpu.cap_bytes != target.cap_bytes
    (notice,) = told
    assert notice.is_warning and "trains on the CPU" in notice.message
    assert on_cpu.where_it_trains(script_facts(device="cpu"), search_spec(), told.append) is on_cpu and len(told) == 1


def test_a_machine_whose_proc_cannot_be_read_is_refused_before_anything_is_stored(monkeypatch, tmp_path):
    monkeypatch.setattr("autotune.study.target.PROC", tmp_path)
    with pytest.raises(HostError, match="cannot be read here"):
        open_target(search_spec())


@pytest.mark.parametrize(
    ("asked_for", "num_devices", "is_torchs_fault"), [("GPU-1", 0, True), ("GPU-1", 1, False), ("", 0, False)]
)
def test_a_torch_without_cuda_is_named_as_the_reason(asked_for, num_devices, is_torchs_fault):
    told = []
    seen = VisibleDevices(asked_for=asked_for, num_devices=num_devices)
    target = make_target(search_spec(), gpu_machine().device)
    target.where_it_trains(script_facts(device="cpu", cuda_devices=seen), search_spec(), told.append)
    assert ("torch 2.13.0 cannot use" in told[0].message) is is_torchs_fault


@pytest.fixture
def idle_devices(monkeypatch):
    """Two devices that nobody uses; the second is the freer one."""
    first = replace(gpu_machine().device, uuid="GPU-0", free_bytes=40 * GIB)
    second = replace(first, uuid="GPU-1", free_bytes=70 * GIB)
    monkeypatch.setattr(device_module, "cuda_devices", lambda: (first, second))
    monkeypatch.setattr(site_module, "cuda_devices", lambda: (first, second))


def on_gpus(**facts):
    return script_facts(**{"device": "cuda", "device_numbers": (0,), **facts})


def jobs_after(spec, facts):
    told = []
    target = open_target(spec)
    probe = Jobs(spec=spec, target=target).probe()
    target = target.where_it_trains(facts, spec, told.append)
    script_settings = script_settings_of(facts)
    return (
        probe,
        Jobs(spec=spec, target=target, facts=facts, script_settings=script_settings).trial(script_settings),
        target,
        told,
    )


def test_a_probe_sees_all_idle_devices_and_trials_the_freest_that_a_script_uses(idle_devices):
    seen = VisibleDevices(asked_for="GPU-1,GPU-0", num_devices=2)
    probe, trial, _, told = jobs_after(search_spec(), on_gpus(cuda_devices=seen))
    assert probe.devices == ("GPU-1", "GPU-0")
    assert trial.devices == ("GPU-1",)
    assert trial.facts.cuda_devices == VisibleDevices(asked_for="GPU-1", num_devices=1)
    assert told == []


def test_a_device_by_name_is_all_that_probe_and_trials_see(idle_devices):
    probe, trial, _, _ = jobs_after(search_spec(device="cuda:0"), on_gpus())
    assert probe.devices == trial.devices == ("GPU-0",)


def test_processes_that_a_script_starts_by_itself_have_a_device_each_in_its_trials(idle_devices):
    _, trial, target, told = jobs_after(search_spec(), on_gpus(world_size=2))
    assert trial.devices == ("GPU-1", "GPU-0")
    assert target.cap_bytes == int(0.9 * 40 * GIB)
    assert target.host.num_devices == 2
    assert "starts 2 processes by itself" in told[0].message


def test_torchruns_processes_get_the_freest_devices(idle_devices):
    spec = search_spec(num_processes_per_node=2)
    probe, trial, target, _ = jobs_after(spec, on_gpus(world_size=2))
    assert probe.devices == trial.devices == ("GPU-0", "GPU-1")
    assert target.cap_bytes == int(0.9 * 40 * GIB)
    more = search_spec(num_processes_per_node=3)  # They share devices.
    assert jobs_after(more, on_gpus(world_size=3))[1].devices == ()


@pytest.mark.parametrize(
    ("facts", "words", "lines"),
    [
        (
            {"device_numbers": (0, 1), "notes": ("data_parallel",)},
            "over 2 devices by torch.nn.DataParallel",
            (
                "autotune search train.py --nproc-per-node 2 -- --lr 1",
                "autotune search train.py --device cuda:1 -- --lr 1",
            ),
        ),
        ({"device_numbers": (0, 1)}, "lays its model over 2 devices", ("--nproc-per-node 2", "--device cuda:1")),
        ({"device_numbers": (1,)}, "trains on cuda:1 by its own choice", ("--device cuda:1",)),
    ],
)
def test_a_process_on_several_devices_is_refused_by_name_with_the_lines_to_type(idle_devices, facts, words, lines):
    spec = search_spec(command=(sys.executable, "train.py", "--lr", "1"))
    with pytest.raises(UsageError) as refused:
        jobs_after(spec, on_gpus(**facts))
    assert words in refused.value.message
    assert all(line in refused.value.hint for line in lines)


def test_another_device_is_advised_only_where_there_is_one(monkeypatch):
    busy = replace(gpu_machine().device, num_other_processes=1)
    for shown, is_advised in (((busy,), False), ((busy, replace(busy, uuid="GPU-2")), True)):
        for module in (device_module, site_module):
            monkeypatch.setattr(module, "cuda_devices", lambda shown=shown: shown)
        with pytest.raises(HostError) as refused:
            open_target(search_spec(device="cuda:0"))
        assert ("choose another device" in refused.value.hint) is is_advised


def test_the_allocators_limit_ends_a_trial_below_the_cap_on_a_gpu_alone() -> None:
    on_gpu = make_target(search_spec(), gpu_machine().device)
    assert on_gpu.reachable_bytes is not None
    assert 0.95 * on_gpu.cap_bytes < on_gpu.reachable_bytes < on_gpu.cap_bytes
    assert make_target(search_spec(), cpu_machine().device).reachable_bytes is None
