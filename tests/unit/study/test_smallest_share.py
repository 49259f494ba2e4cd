"""The least device memory for the winner's full rate, from a whole search to the reservation of a real run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.emit.tuned_config import read_config
from autotune.host import DeviceInfo
from autotune.lab.function_runner import FinishedRun, Measured, evaluate
from autotune.model.events import MemoryShareStarted
from autotune.model.outcome import Outcome
from autotune.model.result import StartKind
from autotune.model.search_result import SearchResult
from autotune.protocol.job import Mode
from autotune.report.summary_text import NextCommands, summary
from autotune.runner import devices as device_module
from autotune.settings import Precision
from autotune.settings.unused_blocks import UnusedBlocks
from autotune.study import apply as apply_module
from autotune.study import target as target_module
from autotune.study.apply import run_command
from autotune.units import GIB, MIB
from tests.unit.facts import script_facts
from tests.unit.runner.samples import rank
from tests.unit.study.whole_search import Scripted, folder

__all__ = ["folder"]

TOTAL = 80 * GIB
GPU = DeviceInfo(
    kind="cuda", name="GPU", total_bytes=TOTAL, free_bytes=TOTAL, uuid="GPU-1", capability=(9, 0), driver="600.1"
)
OUTSIDE = 512 * MIB
COMMANDS = NextCommands(resume="", export="", show="", report="", run="")


class Card(Scripted):
    """A training on a made-up card: slow below one share of the memory, without memory below another."""

    def __init__(self):
        super().__init__()
        self.facts = script_facts(device="cuda", outside_allocator_bytes=OUTSIDE)
        self.reserved, self.allocated, self.enough, self.growing_enough = 14 * GIB, 8 * GIB, 10 * GIB, 10 * GIB
        self.whole_enough = TOTAL
        self.has_process, self.looks, self.starts = False, [], []
        self.outcome_of_look = Outcome.OK

    def start(self, job):
        settings = job.request.settings
        if job.mode is not Mode.TRIAL:
            return super().start(job)
        self.ran.append(settings)
        is_live = self.has_process and job.serves
        self.has_process = job.serves
        if settings.memory_fraction < 1.0:
            self.looks.append((settings, round(settings.memory_fraction * TOTAL)))
        result = evaluate(lambda _: self._rate(settings), settings, job.cap_bytes)
        if result.outcome is not Outcome.OK:
            self.has_process = False
        return FinishedRun(None, replace(self._with_ranks(result, settings), start=self._start_kind(is_live)))

    def _start_kind(self, is_live):
        self.starts.append(is_live)
        return StartKind.LIVE if is_live else StartKind.FORKED

    def _limit(self, settings):
        return settings.memory_fraction * TOTAL

    def _enough(self, settings):
        if settings.unused_blocks is UnusedBlocks.WHOLE:
            return self.whole_enough
        return self.growing_enough if settings.expandable_segments else self.enough

    def _num_retries(self, settings):
        return 3 if self._limit(settings) < self._enough(settings) else 0

    def _rate(self, settings):
        enough = self._enough(settings)
        if self._limit(settings) < min(self.allocated, enough):
            raise MemoryError("CUDA out of memory")
        rate = 100.0 * (2.0 if settings.precision is Precision.BF16 else 1.0)
        slowed = 0.5 if self._limit(settings) < enough else 1.0
        return Measured(samples_per_second=rate * slowed, peak_memory_bytes=self.reserved + OUTSIDE)

    def _with_ranks(self, result, settings):
        figures = rank(
            peak_reserved_bytes=min(self.reserved, int(self._limit(settings))),
            window_allocated_bytes=self.allocated,
            num_window_retries=self._num_retries(settings),
        )
        return replace(result, ranks=(figures,), outside_allocator_bytes=OUTSIDE)


@pytest.fixture
def card(folder, monkeypatch):
    for module in (device_module, target_module, apply_module):
        monkeypatch.setattr(module, "cuda_devices", lambda: (GPU,))
    folder.runner = Card()
    return folder.runner


def found_by(folder, **changes):
    return folder.search(**{"device": "cuda", "memory_cap": "64GiB", "max_trials": 4, **changes})


def test_a_search_finds_the_least_memory_of_the_winner_and_a_run_that_shares_reserves_no_more(folder, card):
    result = found_by(folder)
    assert result.memory.is_measured and result.best.settings.precision is Precision.BF16
    assert card.enough <= result.memory.smallest_bytes <= 1.04 * card.enough
    assert result.memory.shared_bytes == round(1.15 * result.memory.smallest_bytes)
    config = read_config(Path(result.config))
    assert config.memory.shared_memory_bytes == result.memory.shared_bytes
    _, shared = run_command(config, ("python", "train.py"), folder.path, share=True)
    _, alone = run_command(config, ("python", "train.py"), folder.path, share=False)
    assert json.loads(shared["AUTOTUNE_JOB"])["cap_fraction"] == pytest.approx(result.memory.shared_bytes / TOTAL)
    assert json.loads(alone["AUTOTUNE_JOB"])["cap_fraction"] == config.memory.fraction > 0.7


def test_the_least_memory_is_found_in_one_process_after_the_finals(folder, card):
    result = found_by(folder)
    assert len(result.memory.looks) >= 3
    num_looks = len([event for event in folder.events if isinstance(event, MemoryShareStarted)])
    assert num_looks == len(result.memory.looks)
    finals_and_looks = card.starts[-num_looks:]
    num_without_memory = sum(look.outcome == Outcome.OUT_OF_MEMORY for look in result.memory.looks)
    assert finals_and_looks.count(False) <= 1 + num_without_memory
    assert result.trials.total <= 4, "looks are no trials"


def test_the_summary_and_the_document_say_how_many_such_jobs_fit(folder, card):
    result = found_by(folder)
    text = summary(result, COMMANDS).plain
    assert "runs at full speed in 10." in text and " of 80.0 GiB" in text
    assert result.memory.num_jobs == 6 and "6 such jobs fit" in text
    assert SearchResult.from_document(json.loads(json.dumps(result.document()))) == result


def test_retries_of_the_allocator_count_though_the_rate_stays(folder, card, monkeypatch):
    monkeypatch.setattr(Card, "_rate", lambda self, settings: Measured(samples_per_second=100.0))
    result = found_by(folder)
    assert card.enough <= result.memory.smallest_bytes <= 1.04 * card.enough
    assert any(look.num_retries for look in result.memory.looks)


def test_without_time_the_peak_of_the_allocator_stands_for_the_least_memory(folder, card, monkeypatch):
    monkeypatch.setattr("autotune.study.budget.Budget.affords_look", lambda self, look_s: False)
    memory = found_by(folder).memory
    assert not memory.is_measured and "time of the search was spent" in memory.reason
    assert memory.smallest_bytes == round(1.02 * card.reserved)
    assert memory.shared_bytes == round(1.15 * memory.smallest_bytes)


def test_finals_without_time_for_two_rounds_are_followed_by_no_looks(folder, card, monkeypatch):
    """The looks after one round of timm's ResNet-50 took 35 s, 12 % of the time."""
    monkeypatch.setattr("autotune.study.finals.LEAST_ROUNDS", 99)
    memory = found_by(folder).memory
    assert not memory.is_measured and memory.looks == () and "compared nothing" in memory.reason


def test_a_script_with_a_share_of_its_own_is_left_alone(folder, card):
    card.facts = replace(card.facts, own_memory_fraction=True)
    memory = found_by(folder).memory
    assert not memory.is_measured and "the script sets it by itself" in memory.reason
    assert not memory.looks


def test_the_user_bounds_the_search(folder, card):
    card.enough = card.allocated = 8 * GIB
    memory = found_by(folder, ranges=(("memory_fraction", "0.3,0.9"),)).memory
    assert min(look.limit_bytes for look in memory.looks) >= 0.3 * TOTAL
    fixed = found_by(folder, study="fixed", fixed=(("memory_fraction", "1.0"),)).memory
    assert not fixed.is_measured and fixed.reason == "No smaller limit was measured, as you asked."


def test_the_validation_of_the_script_has_its_memory_too(folder, card):
    card.facts = replace(card.facts, validation_bytes=20 * GIB)
    memory = found_by(folder).memory
    assert memory.smallest_bytes == 20 * GIB and memory.shared_bytes == 23 * GIB


def test_gaps_between_blocks_are_closed_by_segments_that_grow(folder, card):
    card.enough, card.growing_enough = 13 * GIB, 8 * GIB
    result = found_by(folder)
    assert result.memory.shared_bytes >= 1.15 * 13 * GIB
    assert result.memory.expandable_bytes <= 1.04 * 1.15 * 8 * GIB
    assert not result.best.settings.expandable_segments
    config = read_config(Path(result.config))
    _, shared = run_command(config, ("python", "train.py"), folder.path, share=True)
    assert "expandable_segments:True" in shared["PYTORCH_CUDA_ALLOC_CONF"]
    assert json.loads(shared["AUTOTUNE_JOB"])["cap_fraction"] == pytest.approx(result.memory.expandable_bytes / TOTAL)


def test_where_the_allocator_makes_retries_other_blocks_are_tried_under_the_same_limit(folder, card):
    """Blocks that are never split suffice with less; collecting them earlier does not."""
    card.enough = card.growing_enough = 10 * GIB
    card.whole_enough = 8 * GIB
    result = found_by(folder)
    memory, looks = result.memory, [settings.unused_blocks for settings, _ in card.looks]
    assert looks[-2:] == [UnusedBlocks.COLLECT, UnusedBlocks.WHOLE]
    assert memory.unused_blocks == "whole" and 8 * GIB <= memory.blocks_bytes / 1.15 < 0.95 * memory.smallest_bytes
    assert SearchResult.from_document(json.loads(json.dumps(result.document()))) == result
    config = read_config(Path(result.config))
    _, shared = run_command(config, ("python", "train.py"), folder.path, share=True)
    assert shared["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:256"
    assert json.loads(shared["AUTOTUNE_JOB"])["cap_fraction"] == pytest.approx(memory.blocks_bytes / TOTAL)
    _, alone = run_command(config, ("python", "train.py"), folder.path, share=False)
    assert "max_split" not in alone.get("PYTORCH_CUDA_ALLOC_CONF", "")


def test_without_retries_no_other_blocks_are_tried(folder, card, monkeypatch):
    monkeypatch.setattr(Card, "_num_retries", lambda self, settings: 0)
    memory = found_by(folder).memory
    assert memory.blocks_bytes is None and not memory.unused_blocks
    assert {settings.unused_blocks for settings, _ in card.looks} == {UnusedBlocks.KEEP}


def test_on_a_cpu_there_is_no_such_share(folder):
    assert folder.search().memory is None
