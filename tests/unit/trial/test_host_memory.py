"""What a validation takes of the host's memory, from readings that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune.process_memory import ResidentMemory, forget_peak, private_bytes, resident_memory
from autotune.trial.meter.host_memory import (
    EVERY_STEP,
    WORKERS_EVERY_S,
    HostValidation,
    HostValidationWatch,
    OwnMemory,
    PassingWatch,
)


class Process(OwnMemory):
    """One process that training leaves with 100, under a kernel that may forget peaks."""

    def __init__(self, *, can_forget: bool = True) -> None:
        self.held, self.files, self.peak = 100, 10, 110
        self.started: dict[int, int] = {}
        self.time_s = 0.0
        self._can_forget = can_forget
        self.watch = HostValidationWatch(self, now=lambda: self.time_s)

    def resident(self) -> ResidentMemory | None:
        return ResidentMemory(held_bytes=self.held, file_bytes=self.files, peak_bytes=self.peak)

    def forget_peak(self) -> None:
        if self._can_forget:
            self.peak = self.held + self.files

    def children(self) -> Sequence[int]:
        return list(self.started)

    def workers_bytes(self, pids: Sequence[int]) -> int:
        return sum(self.started[pid] for pid in pids)

    def takes(self, num_bytes: int) -> None:
        """Takes so much for a moment."""
        self.peak = max(self.peak, self.held + self.files + num_bytes)

    def trains(self, num_bytes: int = 500) -> None:
        """A step that needs so much."""
        self.watch.called(with_gradients=True)
        self.takes(num_bytes)
        self.watch.trains()
        self.watch.stepped()

    def validates(self, num_bytes: int) -> None:
        """Calls the model on two batches that need so much."""
        self.watch.called(with_gradients=False)
        self.takes(num_bytes)
        self.watch.called(with_gradients=False)
        self.time_s += 2 * WORKERS_EVERY_S


def test_the_peak_of_a_validation_is_told_from_those_of_the_steps_around_it() -> None:
    process = Process()
    process.trains()
    process.validates(200)
    process.trains()
    process.trains()
    assert process.watch.found() == HostValidation(peak_bytes=300, growth_bytes=200)


def test_the_largest_of_several_counts_and_one_that_still_runs() -> None:
    process = Process()
    for num_bytes in (200, 300, 100):
        process.trains()
        process.trains()
        process.validates(num_bytes)
    process.trains()
    process.validates(400)
    assert process.watch.found() == HostValidation(peak_bytes=500, growth_bytes=400)


def test_what_is_read_for_it_before_the_model_is_called_counts() -> None:
    process = Process()
    process.trains()
    process.takes(700)
    process.validates(200)
    process.trains()
    process.trains()
    assert process.watch.found() == HostValidation(peak_bytes=800, growth_bytes=700)


def test_where_peaks_are_not_forgotten_only_a_higher_one_is_known_to_be_its_own() -> None:
    process = Process(can_forget=False)
    process.trains(500)
    process.validates(200)
    process.trains(500)
    assert process.watch.found() == HostValidation(peak_bytes=100, growth_bytes=0)
    process.validates(600)
    process.trains(500)
    assert process.watch.found() == HostValidation(peak_bytes=700, growth_bytes=600)


def test_mapped_files_are_none_of_it_though_they_come_and_go() -> None:
    process = Process()
    process.trains()
    process.files = 1000
    process.takes(200)
    process.validates(0)
    process.trains()
    process.files = 10
    process.trains()
    assert process.watch.found() == HostValidation(peak_bytes=300, growth_bytes=200)


def test_workers_of_its_own_count_and_those_of_training_do_not() -> None:
    process = Process()
    process.started = {1: 5000}
    process.trains()
    process.started = {1: 5000, 2: 30, 3: 40}
    process.validates(200)
    process.started = {1: 5000, 2: 10}
    process.validates(200)
    process.started = {1: 5000}
    process.trains()
    process.trains()
    assert process.watch.found() == HostValidation(peak_bytes=370, growth_bytes=270)


def test_workers_are_not_looked_at_for_every_batch() -> None:
    process = Process()
    process.trains()
    process.watch.called(with_gradients=False)
    process.started = {2: 30}
    process.watch.called(with_gradients=False)
    process.trains()
    process.trains()
    assert process.watch.found() == HostValidation(peak_bytes=100, growth_bytes=0)


def test_a_validation_before_the_first_step_is_one() -> None:
    process = Process()
    process.validates(200)
    for _ in range(EVERY_STEP):
        process.trains()
    assert process.watch.found() == HostValidation(peak_bytes=300, growth_bytes=200)


def test_a_pass_without_gradients_in_every_step_is_none() -> None:
    process = Process()
    for _ in range(EVERY_STEP):
        process.validates(200)
        process.trains()
    assert process.watch.found() is None


def test_without_one_nothing_is_found() -> None:
    process = Process()
    process.trains()
    process.trains()
    assert process.watch.found() is None


def test_a_process_knows_its_own_memory_where_the_kernel_counts_it(tmp_path: Path) -> None:
    assert resident_memory(tmp_path) is None
    (tmp_path / "status").write_text("Name:\tx\nVmHWM:\t 900 kB\nRssAnon:\t 300 kB\nRssFile:\t 70 kB\n")
    assert resident_memory(tmp_path) is None
    with (tmp_path / "status").open("a") as file:
        file.write("RssShmem:\t 5 kB\n")
    expected = ResidentMemory(held_bytes=305 * 1024, file_bytes=70 * 1024, peak_bytes=900 * 1024)
    assert resident_memory(tmp_path) == expected
    forget_peak(tmp_path)
    assert (tmp_path / "clear_refs").read_bytes() == b"5"
    forget_peak(tmp_path / "gone")


@pytest.mark.parametrize(("can_forget", "expected"), [(True, 150), (False, 0)])
def test_what_passed_is_what_training_took_for_a_moment_on_top_of_what_it_holds(
    can_forget: bool, expected: int
) -> None:
    """Where the kernel forgets no peak, that of the preparation is not taken for one of training."""
    process = Process(can_forget=can_forget)
    process.takes(900)  # before training
    watch = PassingWatch(process)
    process.takes(200)
    process.held += 50
    assert watch.most_bytes() == expected
    process.takes(5000)
    assert watch.most_bytes() == 5000


def test_files_that_were_mapped_for_a_while_did_not_pass() -> None:
    process = Process()
    process.files += 7000
    watch = PassingWatch(process)
    process.takes(300)
    process.files -= 7000
    assert watch.most_bytes() == 300


def test_what_passes_is_not_known_where_the_kernel_keeps_no_peak() -> None:
    class Blind(OwnMemory):
        def resident(self) -> ResidentMemory | None:
            return None

        def forget_peak(self) -> None:
            """There is none."""

    assert PassingWatch(Blind()).most_bytes() is None


def test_memory_of_a_worker_is_what_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps_rollup").write_text("00 [rollup]\nPss_Anon: 90 kB\nPrivate_Dirty: 60 kB\n")
    assert private_bytes([7, 8], tmp_path) == 60 * 1024


@pytest.mark.parametrize("with_gradients", [True, False])
def test_a_kernel_that_counts_nothing_finds_nothing(with_gradients: bool) -> None:
    class Blind(OwnMemory):
        def resident(self) -> ResidentMemory | None:
            return None

    watch = HostValidationWatch(Blind(), now=lambda: 0.0)
    watch.called(with_gradients)
    watch.trains()
    assert watch.found() is None
