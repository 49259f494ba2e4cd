"""The benchmark of comparisons runs the product's own finals; here its trials are simulated."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from autotune.settings import Settings
from tests.benchmarks.measure import comparisons
from tests.unit.grids import ok


class SimulatedTrials:
    """Trials without processes; larger prefetch is faster by the benchmark's own gain."""

    script_settings = Settings(num_workers=4, prefetch_factor=2)

    def __init__(self) -> None:
        self.jobs = SimpleNamespace(trial=lambda settings, **options: settings)

    def run(self, job, *, seed):
        faster = job.prefetch_factor == comparisons.FASTER_PREFETCH
        rate = (comparisons.GAIN if faster else 1.0) * (100.0 + 0.1 * (seed % 5))
        return ok(rate)


@pytest.mark.parametrize(("part", "is_gain"), [("itself", False), ("faster", True)])
def test_a_comparison_of_known_settings_goes_through_the_finals(monkeypatch, part, is_gain):
    @contextmanager
    def simulated(*arguments):
        yield SimulatedTrials()

    monkeypatch.setattr(comparisons, "trials_of", simulated)
    found = comparisons.compare_once(part, 7)
    assert found["is_gain"] is is_gain
    assert set(found["rates"]) == {0, 1, 2, 3}
    assert found["num_rounds"] == len(found["rates"][0]) >= 3
