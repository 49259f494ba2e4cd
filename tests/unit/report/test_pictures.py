"""What the pictures of a study say: positions, marks, the front of memory and rate, and single changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.report.effects import effect_text, effects, values_of, varied
from autotune.report.pictures import pareto, pictures, setting_pictures
from autotune.report.study_page import report_document
from autotune.report.svg import Chart, Scale
from autotune.units import GIB

from .examples import NATURAL, measured
from .stories import TRIALS, WORKERS, trial, view


def texts(element):
    return [node.text for node in element.iter("text")]


def classes(element, tag):
    return [node.get("class") for node in element.iter(tag)]


def picture(title, **changes):
    return next(found for found in pictures(view(**changes)) if found.title == title)


def test_a_scale_goes_from_end_to_end_and_has_round_ticks():
    scale = Scale(low=0.0, high=2500.0, start=100.0, end=0.0)
    assert (scale(0.0), scale(2500.0), scale(1250.0)) == (100.0, 0.0, 50.0)
    assert scale.ticks() == [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0]
    assert Scale(low=3.0, high=3.0, start=0.0, end=10.0).ticks() == [3.0]
    assert Scale(low=3.0, high=3.0, start=0.0, end=10.0)(3.0) == 5.0
    gib = Scale(low=1.9 * GIB, high=7.9 * GIB, start=0.0, end=1.0).ticks(GIB)
    assert [tick / GIB for tick in gib] == pytest.approx([2.0, 4.0, 6.0])


@pytest.mark.parametrize("low", [0.0, 1e-9, 17.0, 4e9])
@pytest.mark.parametrize("span", [1e-6, 0.37, 1.0, 3.0, 9.99, 1e7])
def test_ticks_lie_within_and_are_neither_few_nor_many(low, span):
    scale = Scale(low=low, high=low + span, start=0.0, end=1.0)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 8
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)


def test_ticks_that_would_run_into_each_other_are_left_out():
    chart = Chart("", (0.0, 30.0), (0.0, 1.0))
    chart.x_ticks("", [(value, "a long name") for value in range(30)])
    assert 1 < texts(chart.root).count("a long name") < 8


def test_the_history_has_a_mark_for_every_trial_and_the_best_so_far():
    drawing = picture("How the search went").drawing
    assert classes(drawing, "circle").count("mark ok") == 3
    assert classes(drawing, "polygon") == ["mark bound"]
    assert classes(drawing, "rect") == ["mark memory"] and classes(drawing, "path") == ["mark failed"]
    tips = [node.text for node in drawing.iter("title")]
    assert "trial 3, ok, 2,410 per second, 12.0 GiB: num_workers=4 persistent_workers=true precision=bf16" in tips
    (line,) = [node for node in drawing.iter("polyline") if node.get("class") == "line"]
    heights = [float(point.split(",")[1]) for point in line.get("points").split()]
    assert heights == sorted(heights, reverse=True), "the best so far never falls"
    assert classes(drawing, "circle").count("mark final") == 1, "the best, from the finals"


def test_a_cap_far_away_is_said_and_one_nearby_is_drawn():
    near = picture("Throughput against memory").drawing
    assert "cap" in classes(near, "line") and "cap 16.0 GiB" in texts(near)
    far = picture("Throughput against memory", memory_cap_bytes=1024 * GIB).drawing
    assert "cap" not in classes(far, "line") and "cap 1.0 TiB, far to the right" in texts(far)


def test_on_the_front_is_what_no_other_beats_in_both():
    assert [told.number for told in pareto(TRIALS)] == [0, 1, 3]
    hungry = trial(6, WORKERS, measured(1500.0, peak_memory_bytes=14 * GIB))
    assert [told.number for told in pareto((*TRIALS, hungry))] == [0, 1, 3], "slower with more memory"
    modest = trial(7, WORKERS, measured(2500.0, peak_memory_bytes=9 * GIB))
    assert [told.number for told in pareto((*TRIALS, modest))] == [7], "faster with less than all"


def test_the_bars_of_stalls_are_as_long_as_the_time_of_a_step():
    drawing = picture("Stalls, before and after").drawing
    widths = [float(node.get("width")) for node in drawing.iter("rect")]
    assert sum(widths[:3]) == pytest.approx(sum(widths[3:]), abs=0.3)
    assert widths[1] / sum(widths[:3]) == pytest.approx(0.6, abs=0.01), "six tenths of the time it waits"
    assert "35% training" in texts(drawing) and "98% training" in texts(drawing)


def test_settings_that_varied_have_a_picture_each():
    found = {drawn.title: drawn.drawing for drawn in setting_pictures(view())}
    assert list(found) == ["num_workers", "persistent_workers", "precision"]
    assert [text for text in texts(found["num_workers"]) if text in ("0", "2", "4")].count("4") == 1


def test_a_batch_and_its_accumulation_are_one_thing_to_vary():
    split = replace(NATURAL, batch_size=32, grad_accum_steps=2)
    assert values_of(split)["batch_size"] == "32 x 2"
    assert varied([trial(0, NATURAL, None), trial(1, split, None)]) == {"batch_size": ("32 x 2", "64")}


def test_an_effect_is_of_pairs_that_differ_in_one_setting_only():
    (effect,) = effects(TRIALS, NATURAL)
    assert (effect.setting, effect.start, effect.end, effect.num_pairs) == ("num_workers", "0", "2", 1)
    assert effect.ratio == pytest.approx(2.0) and effect_text(effect) == "2.00x (1 pair)"
    compiled = replace(NATURAL, compile=True)
    more = (*TRIALS, trial(6, compiled, measured(500.0)), trial(7, replace(compiled, num_workers=2), measured(600.0)))
    found = {(effect.setting, effect.end): effect for effect in effects(more, NATURAL)}
    workers, compiling = found["num_workers", "2"], found["compile", "true"]
    assert (workers.num_pairs, workers.low, workers.high) == (2, pytest.approx(1.2), pytest.approx(2.0))
    assert effect_text(compiling) == "0.39x [0.30, 0.50] (2 pairs)"


def test_what_does_nothing_without_workers_makes_no_difference_to_a_pair():
    persistent = replace(NATURAL, num_workers=2, persistent_workers=True, prefetch_factor=4)
    (effect,) = effects((TRIALS[0], trial(1, persistent, measured(3000.0))), NATURAL)
    assert (effect.setting, effect.end, effect.ratio) == ("num_workers", "2", pytest.approx(3.0))


def test_the_document_has_what_the_page_draws():
    document = report_document(view())
    assert (document["baseline_trial"], document["best_trial"], document["pareto_trials"]) == (0, 3, [0, 1, 3])
    assert document["importances"] == {"num_workers": 0.75, "precision": 0.25}
    assert document["effects"][0]["setting"] == "num_workers"
    assert document["stalls"]["before"]["kind"] == "loader"
    assert [final["trial"] for final in document["finals"]] == [0, 3]
    assert document["trials"][4]["outcome"] == "over_cap" and document["machine"]["torch"] == "2.13.0"
