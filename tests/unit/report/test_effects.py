"""Effects are looked up by the other settings; the pairs are those that comparing each trial with each finds."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from autotune.report.effects import BATCH, INERT_WITHOUT_WORKERS, effects, values_of
from autotune.settings import Settings
from tests.unit.report.examples import measured
from tests.unit.report.stories import trial as story_trial

OWN = Settings(batch_size=64)


def by_comparing_each_with_each(tried: list[tuple[Settings, float]]) -> Counter[tuple[str, str, float]]:
    found: Counter[tuple[str, str, float]] = Counter()
    own = values_of(OWN)
    for settings, rate in tried:
        for others, other_rate in tried:
            values, other = values_of(settings), values_of(others)
            is_bare = 0 in (settings.num_workers, others.num_workers)
            ignored = INERT_WITHOUT_WORKERS if is_bare else ()
            names = [name for name in other if values[name] != other[name] and name not in ignored]
            if len(names) == 1 and values[names[0]] == own[names[0]]:
                found[names[0], other[names[0]], round(math.log(other_rate / rate), 9)] += 1
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_pairs_are_all_that_differ_in_one_setting(seed: int) -> None:
    draw = random.Random(seed)
    tried = [
        (
            replace(
                OWN,
                num_workers=draw.choice((0, 1, 2)),
                prefetch_factor=draw.choice((2, 4)),
                persistent_workers=draw.choice((False, True)),
                channels_last=draw.choice((False, True)),
                batch_size=draw.choice((64, 32)),
            ),
            draw.uniform(100.0, 200.0),
        )
        for _ in range(60)
    ]
    trials = [story_trial(number, settings, measured(rate)) for number, (settings, rate) in enumerate(tried)]
    expected = by_comparing_each_with_each(tried)
    found = {(effect.setting, effect.end): effect for effect in effects(trials, OWN)}
    pairs: Counter[tuple[str, str]] = Counter()
    for (name, end, _), num in expected.items():
        pairs[name, end] += num
    assert {key: effect.num_pairs for key, effect in found.items()} == dict(pairs)
    for (name, end), effect in found.items():
        logs = [log for (n, e, log), num in expected.items() if (n, e) == (name, end) for _ in range(num)]
        assert math.log(effect.ratio) == pytest.approx(sum(logs) / len(logs))
    assert BATCH in {name for name, _ in found}
