from __future__ import annotations

import pytest

from autotune.trial.observing.host_places import LoopSamples, host_places

from .test_user_code import LOOP, TRAINING


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    return str(path)


def seen(script, **changes):
    values = {
        "training": {(script, line) for line in TRAINING},
        "loading": {(script, 10)},
        "num_steps": 10,
        "wall_s": 1.0,
        "call_counts": {},
        "call_seconds": {},
    }
    return LoopSamples(**{**values, **changes})


def test_the_readings_of_a_block_are_one_place_with_its_whole_share(script):
    key = (((script, 18), (script, 23)), "Tensor.item")
    sampled = {((script, 18), (script, 23)): 0.3, ((script, 17), (script, 23)): 0.3, ((script, 11), (script, 23)): 0.4}
    (place,) = host_places(seen(script, call_counts={key: 640}, call_seconds={key: 0.1}, sampled=sampled))
    assert (place.line, place.first_line, place.last_line) == (18, 15, 18)
    assert (place.call, place.calls_per_step) == ("Tensor.item", 64.0)
    assert place.share == pytest.approx(0.6) and place.blocked_share == pytest.approx(0.1)


def test_a_function_that_is_called_beside_training_counts_where_it_is_called(script):
    stack = ((script, 4), (script, 12), (script, 23))
    key = (stack, "Tensor.item")
    (place,) = host_places(seen(script, call_counts={key: 10}, call_seconds={key: 0.0}, sampled={stack: 1.0}))
    assert (place.first_line, place.last_line, place.share) == (12, 12, 1.0)


def test_what_runs_within_loading_is_the_loaders_affair(script):
    stack = (("/data.py", 5), (script, 10), (script, 23))
    key = (stack, "Tensor.item")
    found = host_places(seen(script, call_counts={key: 10}, call_seconds={key: 0.5}, sampled={stack: 1.0}))
    assert found == ()


def test_where_nothing_could_be_sampled_the_time_inside_the_calls_is_what_is_known(script):
    key = (((script, 20), (script, 23)), "Tensor.item")
    (place,) = host_places(seen(script, call_counts={key: 10}, call_seconds={key: 0.25}))
    assert place.share == place.blocked_share == 0.25


def test_own_work_without_readings_is_a_place_without_what_torch_does_in_it(script):
    sampled = {((script, 12), (script, 23)): 0.5, ((script, 11), (script, 23)): 0.5}
    (place,) = host_places(seen(script, sampled=sampled, sampled_in_torch={((script, 12), (script, 23)): 0.3}))
    assert (place.line, place.call) == (12, "")
    assert place.share == pytest.approx(0.2)


def test_what_takes_next_to_nothing_is_left_out(script):
    key = (((script, 20), (script, 23)), "Tensor.item")
    sampled = {((script, 20), (script, 23)): 0.001, ((script, 11), (script, 23)): 1.0}
    assert host_places(seen(script, call_counts={key: 10}, call_seconds={key: 0.0}, sampled=sampled)) == ()
