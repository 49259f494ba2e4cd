"""Settings of the loader's workers: order, start, threads of libraries, cores; each put in force and read back."""

from __future__ import annotations

import inspect
import os
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.model.facts import ArgumentFacts
from autotune.model.storage_traps import StorageTrap, TrapKind
from autotune.settings import BY_NAME, LOADER_FIELDS, Settings, worker_start
from autotune.settings.worker_start import WorkerStart
from autotune.space.derive import derive_space
from autotune.trial.apply.observed import loader_settings
from autotune.trial.loader.loaders import override_arguments, rearrange
from tests.unit.facts import cpu_machine, gpu_machine, loader_facts, script_facts, search_spec

DATA = TensorDataset(torch.arange(64))
has_order = "in_order" in inspect.signature(DataLoader.__init__).parameters
of_newer_torch = pytest.mark.skipif(not has_order, reason="refused: this torch's loaders keep the order")
CHANGES: list[Any] = [
    pytest.param({"in_order": False}, marks=of_newer_torch),
    {"multiprocessing_context": "forkserver"},
    {"multiprocessing_context": "spawn"},
    {"worker_threads": 1},
    {"free_workers": True},
    pytest.param({"worker_threads": 2, "free_workers": True, "in_order": False}, marks=of_newer_torch),
]


def loader_of(own: dict[str, Any], changes: dict[str, Any]) -> DataLoader[Any]:
    settings = Settings.from_dict({"num_workers": 2, **changes}).to_dict()
    return DataLoader(**override_arguments({"dataset": DATA, **own}, {name: settings[name] for name in LOADER_FIELDS}))


def begin(worker_id: int) -> None:
    os.environ["BEGUN"] = str(worker_id)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("own", [{}, {"worker_init_fn": begin}], ids=["plain", "own worker_init_fn"])
def test_a_loader_is_built_with_the_setting_and_shows_it(changes: dict[str, Any], own: dict[str, Any]) -> None:
    seen = loader_settings(loader_of(own, changes))
    assert {name: seen[name] for name in changes} == changes


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_built_loader_takes_the_setting_and_gives_it_back(changes: dict[str, Any]) -> None:
    own = {"dataset": DATA, "num_workers": 2, "worker_init_fn": begin}
    loader = DataLoader(**own)
    settings = Settings.from_dict({"num_workers": 2, **changes}).to_dict()
    rearrange(loader, override_arguments(own, {name: settings[name] for name in LOADER_FIELDS}))
    seen = loader_settings(loader)
    assert {name: seen[name] for name in changes} == changes
    rearrange(loader, own)
    assert loader_settings(loader) == loader_settings(DataLoader(**own))
    assert loader.worker_init_fn is begin


def test_a_function_that_a_framework_has_set_later_stays_below_the_setting() -> None:
    loader = DataLoader(DATA, num_workers=2)
    loader.worker_init_fn = begin
    rearrange(loader, {"dataset": DATA, "num_workers": 2, "worker_init_fn": WorkerStart(None, num_threads=1)})
    assert isinstance(loader.worker_init_fn, WorkerStart) and loader.worker_init_fn.before is begin


def test_the_setting_is_seen_below_the_gate_of_a_trial() -> None:
    loader = DataLoader(DATA, num_workers=2, worker_init_fn=WorkerStart(None, num_threads=1))
    gate = SimpleNamespace(user_init=loader.worker_init_fn)
    loader.worker_init_fn = gate  # type: ignore[assignment]
    assert loader_settings(loader)["worker_threads"] == 1
    rearrange(loader, {"dataset": DATA, "num_workers": 2})
    assert loader.worker_init_fn is None


def test_a_loader_without_a_setting_keeps_its_function() -> None:
    assert loader_of({"worker_init_fn": begin}, {}).worker_init_fn is begin
    assert loader_of({}, {}).worker_init_fn is None


def test_a_worker_runs_the_scripts_function_and_limits_the_libraries_that_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    monkeypatch.setitem(worker_start.sys.modules, "cv2", SimpleNamespace(setNumThreads=asked.append))
    monkeypatch.setitem(worker_start.sys.modules, "pyarrow", SimpleNamespace())  # a version without the function
    monkeypatch.setenv("BEGUN", "")
    pickle.loads(pickle.dumps(WorkerStart(begin, num_threads=1)))(3)
    assert (asked, os.environ["BEGUN"]) == ([1], "3")


def test_workers_of_a_pinned_process_get_all_cores_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_start.pinned_cpus() is None
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(worker_start, "START_CPUS", frozenset(before))
    one = {min(before)}
    if one == before:
        pytest.skip("the machine has one core")
    try:
        os.sched_setaffinity(0, one)
        assert worker_start.pinned_cpus() == one
        WorkerStart(None, cpus=frozenset(before))(0)
        assert os.sched_getaffinity(0) == before
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("facts", "loader", "allowed"),
    [
        ({}, {"is_shuffled": True}, {"in_order": (True, False)}),
        ({}, {}, {"in_order": (True,)}),
        ({"torch_version": "2.4.1"}, {"is_shuffled": True}, {"in_order": (True,)}),
        ({}, {}, {"multiprocessing_context": ("default",), "worker_threads": (0,), "free_workers": (False,)}),
        ({"modules": ("cv2", "torch")}, {}, {"worker_threads": (0, 1, 2)}),
        ({"notes": ("pinned_process",)}, {}, {"free_workers": (False, True)}),
    ],
)
def test_a_search_tries_what_the_script_has_a_use_for(
    facts: dict[str, Any], loader: dict[str, Any], allowed: dict[str, Any]
) -> None:
    space = derive_space(script_facts(loader=loader_facts(**loader), **facts), cpu_machine(), search_spec())
    assert {name: space.allowed[name] for name in allowed} == allowed


def test_workers_are_started_afresh_where_a_fork_is_unsafe_and_the_reason_against_it_is_named() -> None:
    traps = (StorageTrap(kind=TrapKind.CUDA_IN_FORK, name="Clips.decoder", where="train.py:3"),)
    unsafe = script_facts(device="cuda", loader=loader_facts(traps=traps))
    space = derive_space(unsafe, gpu_machine(), search_spec())
    assert {"forkserver", "spawn"} <= set(space.allowed["multiprocessing_context"])
    usual = BY_NAME["multiprocessing_context"].usual
    assert usual is not None and usual.value == "forkserver"
    reason = "the loader's dataset cannot be handed to a new process"
    hopeless = script_facts(device="cuda", loader=loader_facts(traps=traps, spawn_refusal=reason))
    space = derive_space(hopeless, gpu_machine(), search_spec())
    assert reason in dict(space.refused)["multiprocessing_context=forkserver"]


def test_a_dataset_that_forked_workers_may_break_is_not_changed_to_forked_workers() -> None:
    traps = (StorageTrap(kind=TrapKind.LMDB_BEFORE_FORK, name="self.env", where="data.py:3"),)
    facts = script_facts(loader=loader_facts(num_workers=2, traps=traps, spawn_refusal="it cannot be pickled"))
    space = derive_space(facts, cpu_machine(), search_spec())
    assert space.allowed["multiprocessing_context"] == ("default",)
    asked = derive_space(facts, cpu_machine(), search_spec(ranges=(("multiprocessing_context", "fork"),)))
    assert "fork" in asked.allowed["multiprocessing_context"]


@pytest.mark.parametrize(("own", "allowed"), [(0, {0}), (1, {0, 1}), (2, {0, 1, 2, 3, 4})])
def test_a_dataset_that_reads_through_an_open_file_gets_no_second_reader(own: int, allowed: set[int]) -> None:
    traps = (StorageTrap(kind=TrapKind.FILE_SHARED, name="self.input_file", where="data.py:3"),)
    argument = ArgumentFacts(name="num_workers", template="--workers={}", is_taken=True)
    for arguments in ((), (argument,)):
        facts = script_facts(loader=loader_facts(num_workers=own, traps=traps), arguments=arguments)
        space = derive_space(facts, cpu_machine(), search_spec())
        assert set(space.allowed["num_workers"]) == allowed
        if own < 2:
            (reason,) = {reason for name, reason in space.refused if name.startswith("num_workers")}
            assert reason.startswith("self.input_file at data.py:3 is open before workers are forked")
            assert reason.endswith("ask with --set")
        asked = derive_space(facts, cpu_machine(), search_spec(ranges=(("num_workers", "0,1,3"),)))
        assert set(asked.allowed["num_workers"]) >= {0, 1, 3}


def test_workers_are_forked_where_their_slow_start_was_inherited() -> None:
    ranks = script_facts(device="cuda", loader=loader_facts(inherited_start="spawn"))
    space = derive_space(ranks, gpu_machine(), search_spec())
    assert space.allowed["multiprocessing_context"] == ("default", "fork")
    assert "workers start by spawn already" in dict(space.refused)["multiprocessing_context=forkserver"]
    asked = derive_space(ranks, gpu_machine(), search_spec(ranges=(("multiprocessing_context", "spawn,fork"),)))
    assert set(asked.allowed["multiprocessing_context"]) == {"spawn", "fork"}


def test_a_start_method_is_inherited_by_a_started_process_whose_loader_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from autotune.trial.probe import main_module

    loader, named = DataLoader([1], num_workers=0), DataLoader([1], num_workers=1, multiprocessing_context="spawn")
    monkeypatch.setattr(main_module.multiprocessing, "get_start_method", lambda allow_none: "spawn")
    assert main_module.inherited_start(loader) == ""  # set_start_method in the script's first process: a choice
    monkeypatch.setattr(main_module.multiprocessing, "parent_process", object)
    assert main_module.inherited_start(loader) == "spawn"
    assert main_module.inherited_start(named) == ""
    monkeypatch.setattr(main_module.multiprocessing, "get_start_method", lambda allow_none: "fork")
    assert main_module.inherited_start(loader) == ""


def test_what_cannot_be_handed_to_a_new_process_is_named_without_copying_data() -> None:
    from autotune.trial.probe.main_module import why_not_spawned

    big = TensorDataset(torch.zeros(1 << 20))
    assert why_not_spawned(DataLoader(big)) == ""
    assert not big.tensors[0].is_shared()  # type: ignore[no-untyped-call]
    refusal = why_not_spawned(DataLoader(big, collate_fn=lambda batch: batch))
    assert "collate_fn cannot be handed to a new process" in refusal
