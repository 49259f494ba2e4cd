"""Rates out of lines of output."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.street.progress import Counter, Lines
from tests.street.rows import SCRIPTS
from tests.street.runner import settle_s
from tests.street.script import Progress
from tests.street.watch import Limits, watch

PRINTED = {
    "imagenet_resnet50": "Epoch: [1][  30/1000]\tTime  0.195 ( 0.201)\tData  0.000 ( 0.004)\tLoss 6.9e+00",
    "timm_resnet50": "Train: 0 [  30/1000 (  3%)]  Loss: 6.98 (6.97)  Time: 0.190s,  673.10/s  (0.2s,  640.00/s)",
    "torchvision_classification": "Epoch: [0]  [  30/1000]  eta: 0:03:05  lr: 0.1  img/s: 2114.3  time: 0.0915",
    "hf_run_clm_gpt2": "  3%|3         | 30/1000 [00:05<02:51,  5.66it/s]",
    "nanogpt": "iter 30: loss 9.6521, time 1003.52ms, mfu 40.12%",
    "mnist": "Train Epoch: 1 [30/60000 (0%)]\tLoss: 2.300024",
    "dcgan": "[0/25][30/1000] Loss_D: 1.2014 Loss_G: 3.6126 D(x): 0.62 D(G(z)): 0.4 / 0.03",
    "super_resolution": "===> Epoch[1](30/50): Loss: 0.1500",
    "word_language_model": "| epoch   1 |    30/ 2983 batches | lr 20.00 | ms/batch 12.34 | loss  6.00 | ppl   403.43",
    "gat": "Epoch: 0030 (0.0102s) loss_train: 1.9 acc_train: 0.1 loss_val: 1.9 acc_val: 0.1",
    "yolov5": "\x1b[K       0/19      0G   0.1174 0.03498  0.1042   93   160: 82% ━━━━━╸── 30/40 1.3s/it 58.6s<8.9s",
    "yolox": "2026-01-01 | INFO     | yolox.core.trainer:260 - epoch: 1/300, iter: 30/375, mem: 4511Mb",
    "pytorch_unet": "Epoch 1/5:   2%|2         | 30/1440 [00:05<02:51,  5.66img/s, loss (batch)=1.2]",
    "lightning_imagenet": "Epoch 0:   3%|3         | 30/1000 [00:11<06:12,  2.61it/s, train_acc1_step=0.000]",
    "lightning_transformer": "\x1b[2KEpoch 0/19  \x1b[91m━━╸\x1b[0m━━━ 30/1719 \x1b[2m0:00:05\x1b[0m 12.8it/s",
    "diffusers_unconditional": "Epoch 0:   3%|3         | 30/188 [00:05<02:51,  5.66it/s, loss=0.9, lr=1e-6, step=30]",
    "diffusion_mnist": "loss: 0.5321:  12%|#2        | 30/235 [00:09<00:43,  4.76it/s]",
    "wgan_gp": "[Epoch 0/200] [Batch 30/938] [D loss: -4.37] [G loss: 0.03]",
    "geometric_mutag_gin": "Epoch: 030, Loss: 0.6913, Train: 0.5000, Test: 0.5000",
    "dlrm": "Finished training it 30/100000 of epoch 0, 21.05 ms/it, loss 0.084212",
    "series_dlinear": "Epoch: 30 cost time: 1.6673924922943115",
    "mingpt_chargpt": "iter_dt 105.12ms; iter 30: train loss 2.91321",
    "makemore": "step 30 | loss 2.9321 | step time 12.31ms",
    "tutorial_cnn": "Epoch [1/5], Step [30/600], Loss: 0.1712",
    "accelerate_cv": "epoch 30: 2.70",
}
"""A line of each script's output at position 30."""
CHATTY = "import time\nfor n in range(10**6):\n    print('step', n, flush=True)\n    time.sleep(0.01)\n"
PAUSED = "import time\nprint('step 1', flush=True)\ntime.sleep(1.5)\n" + CHATTY.replace("'step', n", "'step', n + 2")


def at_ten_per_second(counter: Counter, lines: list[str], start: float = 0.0) -> None:
    for number, line in enumerate(lines):
        counter.line(start + number / 10, line)


@pytest.mark.parametrize("name", PRINTED)
def test_a_scripts_own_line_of_progress_is_read(name: str) -> None:
    script = next(script for script in SCRIPTS if script.name == name)
    for device in script.devices:
        progress = script.progress_on(device)
        assert progress is not None
        counter = Counter(progress)
        assert counter.line(1.0, PRINTED[name])
        assert counter.marks == [(1.0, 30 * progress.per, 0)]


def test_the_rate_is_positions_gained_per_second_times_the_batch() -> None:
    counter = Counter(Progress(pattern=r"step (?P<at>\d+)", per=8))
    at_ten_per_second(counter, [f"step {5 * number}" for number in range(100)])
    assert counter.rate(0.0) == pytest.approx(5 * 8 * 10)


def test_what_comes_before_the_settled_part_is_not_counted() -> None:
    counter = Counter(Progress(pattern=r"step (?P<at>\d+)"))
    at_ten_per_second(counter, [f"step {number}" for number in range(20)])
    at_ten_per_second(counter, [f"step {20 + 3 * number}" for number in range(40)], start=2.0)
    assert counter.rate(2.0) == pytest.approx(30.0)


def test_a_bar_drawn_before_a_first_step_that_compiles_does_not_begin_the_settling() -> None:
    counter = Counter(Progress(pattern=r"(?P<at>\d+)/90"))
    counter.line(1.0, "0/90")
    assert (counter.first_s, counter.begun_s, counter.rate(0.0)) == (1.0, None, None)
    at_ten_per_second(counter, [f"{number}/90" for number in range(1, 30)], start=60.0)
    assert counter.begun_s == 60.0
    assert counter.rate(1.0) == pytest.approx(10.0)


def test_the_longest_pause_is_told_of_the_counted_part_alone() -> None:
    counter = Counter(Progress(pattern=r"(?P<at>\d+)/"))
    for time_s, at in ((0.0, 1), (20.0, 2), (31.0, 3), (32.0, 4), (44.0, 5), (45.0, 6)):
        counter.line(time_s, f"{at}/9")
    assert counter.longest_gap_s(30.0) == 12.0


def test_builds_and_full_queues_of_a_loader_are_left_out() -> None:
    own = {"num_workers": 4, "prefetch_factor": 2, "batch_size": 100}
    line = {"trial_outcomes": [{"settings": own}], "claimed_rates": [200.0, 800.0], "settings": {"num_workers": 40}}
    assert settle_s(line) == 4 * 40 * 2 * 100 / 800
    assert settle_s({**line, "settings": {"compile": True}}) == 30.0
    assert settle_s({"outcome": "too short"}) == 0.0


def test_a_script_has_limits_of_its_own_and_builds_may_ask_for_more() -> None:
    limits, script = Limits(settle_s=5.0, window_s=20.0), SCRIPTS[0]
    assert limits.of(script, 30.0) == replace(limits, settle_s=30.0)
    assert limits.of(script, 0.0) == limits
    hasty = replace(script, settle_s=2.0, window_s=60.0)
    assert limits.of(hasty, 0.0) == replace(limits, settle_s=2.0, window_s=60.0)
    assert limits.of(hasty, 8.0) == replace(limits, settle_s=8.0, window_s=60.0)


def test_of_lines_at_the_ends_of_epochs_the_last_two_count_at_the_least() -> None:
    counter = Counter(Progress(pattern=r"epoch (?P<at>\d+)", per=800, ends_epoch=True))
    for time_s, at in ((50.0, 0), (70.0, 1), (80.0, 2)):
        counter.line(time_s, f"epoch {at}")
    assert counter.rate(30.0) == counter.rate(5.0) == 80.0 and counter.longest_gap_s(30.0) == 10.0
    counter.line(100.0, "epoch 3")
    assert counter.rate(5.0) == 800 / 20, "with more lines, those after the settling"


def test_a_search_for_kernels_belongs_to_no_rate() -> None:
    counter = Counter(Progress(pattern=r"iter (?P<at>\d+)", per=16, longest_step_s=5.0))
    for time_s, at in ((0.0, 5), (1.0, 10), (13.0, 15), (14.0, 20), (15.0, 25)):
        counter.line(time_s, f"iter {at}")
    assert counter.rate(0.0) == 15 * 16 / 3.0


def test_a_pause_that_outlasts_the_settling_is_followed_by_a_whole_window(tmp_path: Path) -> None:
    limits = Limits(settle_s=0.1, window_s=1.0, start_s=60.0)
    watched = watch(
        [sys.executable, "-c", PAUSED], cwd=tmp_path, environ={}, progress=Progress(pattern=r"^step (?P<at>\d+)"),
        limits=limits, log=tmp_path / "log",
    )  # fmt: skip
    assert watched.first_s is not None and watched.wall_s - watched.first_s > 2.0


def test_a_burst_of_lines_held_up_in_the_pipe_gives_no_rate() -> None:
    counter = Counter(Progress(pattern=r"step (?P<at>\d+)"))
    counter.line(0.0, "step 1")
    for number in range(400):
        counter.line(30.0 + number / 10_000, f"step {number + 2}")
    assert counter.rate(5.0) is None


def test_lines_without_a_position_count_as_one_each() -> None:
    counter = Counter(Progress(pattern=r"^SPS: ", per=512))
    at_ten_per_second(counter, ["SPS: 1000", "noise", "SPS: 1100", "noise", "SPS: 1050"])
    assert counter.rate(0.0) == pytest.approx(512 * 5)


def test_the_time_between_two_epochs_is_in_no_rate() -> None:
    counter = Counter(Progress(pattern=r"epoch (?P<epoch>\d+) (?P<at>\d+)"))
    at_ten_per_second(counter, [f"epoch 0 {number}" for number in range(10)])
    at_ten_per_second(counter, [f"epoch 1 {number}" for number in range(10)], start=60.0)
    assert counter.rate(0.0) == pytest.approx(10.0)


def test_a_count_that_begins_anew_without_an_epoch_opens_a_stretch() -> None:
    counter = Counter(Progress(pattern=r"(?P<at>\d+)/10 \["))
    at_ten_per_second(counter, [f"{number}/10 [" for number in range(11)])
    at_ten_per_second(counter, [f"{number}/10 [" for number in range(11)], start=30.0)
    assert counter.rate(0.0) == pytest.approx(10.0)


def test_a_bar_that_is_drawn_again_keeps_the_time_of_its_first_drawing() -> None:
    counter = Counter(Progress(pattern=r"(?P<at>\d+)/9"))
    at_ten_per_second(counter, ["0/9", "1/9", "1/9", "1/9", "2/9"])
    assert [mark[0] for mark in counter.marks] == pytest.approx([0.0, 0.1, 0.4])


def test_the_length_of_an_epoch_is_read_where_lines_tell_it() -> None:
    counter = Counter(Progress(pattern=r"step (?P<at>\d+)/(?P<of>\d+)"))
    assert counter.epoch_length is None
    counter.line(1.0, "step 1/50")
    assert counter.epoch_length == 50


def test_epochs_that_the_script_times_itself_count_with_their_start_and_without_validation() -> None:
    counter = Counter(Progress(pattern=r"^Epoch: (?P<at>\d+) cost time: (?P<seconds>[\d.]+)", per=1000))
    for number, time_s in enumerate((2.0, 5.0, 8.0), start=1):
        counter.line(time_s, f"Epoch: {number} cost time: {2.0 if number == 1 else 0.5}")
    assert counter.rate(1.0) == pytest.approx(2000.0)
    assert counter.rate(30.0) is None


def test_one_line_gives_no_rate() -> None:
    counter = Counter(Progress(pattern=r"step (?P<at>\d+)"))
    counter.line(1.0, "step 1")
    assert counter.rate(0.0) is None and counter.first_s == 1.0


def test_no_line_of_progress_gives_no_rate() -> None:
    counter = Counter(Progress(pattern=r"step (?P<at>\d+)"))
    assert not counter.line(1.0, "loading data") and counter.rate(0.0) is None and counter.first_s is None


def test_carriage_returns_end_lines_and_a_cut_line_waits_for_its_rest() -> None:
    lines = Lines()
    assert lines.feed("  0%| | 0/9\r 11%|# | 1/9\r 22%") == ["  0%| | 0/9", " 11%|# | 1/9"]
    assert lines.feed("|## | 2/9\n\nend\n") == [" 22%|## | 2/9", "end"]


def test_a_script_that_never_ends_is_watched_and_ended(tmp_path: Path) -> None:
    limits = Limits(settle_s=0.1, window_s=0.5, start_s=60.0)
    progress = Progress(pattern=r"^step (?P<at>\d+)", per=2)
    watched = watch(
        [sys.executable, "-c", CHATTY], cwd=tmp_path, environ={}, progress=progress, limits=limits, log=tmp_path / "log"
    )
    assert watched.rate is not None and watched.rate > 0
    assert watched.exit_code is None and "step 0" in (tmp_path / "log").read_text()


def test_a_script_that_fails_leaves_its_last_words_and_its_exit_code(tmp_path: Path) -> None:
    watched = watch(
        [sys.executable, "-c", "raise SystemExit('no data')"], cwd=tmp_path, environ={},
        progress=Progress(pattern="step"), limits=Limits(start_s=60.0), log=tmp_path / "log",
    )  # fmt: skip
    assert (watched.rate, watched.exit_code, watched.tail) == (None, 1, ("no data",))
