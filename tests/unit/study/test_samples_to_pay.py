import math

import pytest

from autotune.study.compile_cost import samples_to_pay


def test_a_start_that_takes_longer_pays_when_the_saved_time_is_as_long():
    # 10 ms against 5 ms per sample: 5 ms saved by each, 30 s lost.
    assert samples_to_pay(30.0, rate=200.0, rate_before=100.0) == pytest.approx(6000)


def test_a_start_that_takes_no_longer_pays_at_once():
    assert samples_to_pay(-1.0, rate=100.0, rate_before=200.0) == 0.0


@pytest.mark.parametrize("rate", [100.0, 90.0])
def test_without_a_higher_rate_it_never_pays(rate):
    assert samples_to_pay(30.0, rate=rate, rate_before=100.0) == math.inf


@pytest.mark.parametrize("rates", [(0.0, 1.0), (1.0, math.inf)])
def test_rates_that_no_training_has_are_refused(rates):
    with pytest.raises(ValueError, match="finite and positive"):
        samples_to_pay(1.0, rate=rates[0], rate_before=rates[1])
