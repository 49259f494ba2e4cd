import math
import statistics

import pytest

from autotune.measure.student_t import student_t_quantile

T_TABLE = [  # published tables, two-sided 95 %, 99 % and one-sided 95 %, 99.95 %
    (0.975, 1, 12.7062047364),
    (0.975, 2, 4.3026527299),
    (0.975, 3, 3.1824463053),
    (0.975, 5, 2.5705818366),
    (0.975, 7, 2.3646242510),
    (0.975, 10, 2.2281388520),
    (0.975, 30, 2.0422724563),
    (0.975, 120, 1.9799304051),
    (0.995, 1, 63.6567411629),
    (0.995, 7, 3.4994832974),
    (0.995, 20, 2.8453397098),
    (0.95, 4, 2.1318467863),
    (0.9995, 10, 4.5868938587),
]


@pytest.mark.parametrize(("p", "df", "quantile"), T_TABLE)
def test_quantiles_are_those_of_the_tables(p, df, quantile):
    assert student_t_quantile(p, df) == pytest.approx(quantile, rel=1e-8)
    assert student_t_quantile(1 - p, df) == pytest.approx(-quantile, rel=1e-8)


@pytest.mark.parametrize("p", [0.500001, 0.6, 0.9, 0.999, 1 - 1e-9, 1e-7])
def test_quantiles_of_one_and_two_degrees_follow_their_closed_forms(p):
    assert student_t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-5)
    assert student_t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-5)


@pytest.mark.parametrize("p", [0.001, 0.3, 0.5001, 0.975, 0.99999])
@pytest.mark.parametrize("df", [1e7, math.inf])
def test_quantiles_of_very_many_degrees_are_those_of_the_normal_distribution(p, df):
    assert student_t_quantile(p, df) == pytest.approx(statistics.NormalDist().inv_cdf(p), rel=1e-4)


@pytest.mark.parametrize(("p", "df"), [(0.9, 1.5), (0.975, 3.7), (0.995, 12.25), (0.55, 40.5)])
def test_the_density_integrated_up_to_a_quantile_gives_its_probability(p, df):
    def density(t):
        norm = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        return math.exp(norm - (df + 1) / 2 * math.log1p(t * t / df))

    num, end = 2000, student_t_quantile(p, df)
    points = [density(i * end / num) for i in range(num + 1)]
    simpson = end / num / 3 * (points[0] + points[-1] + 4 * sum(points[1:-1:2]) + 2 * sum(points[2:-1:2]))
    assert simpson == pytest.approx(p - 0.5, rel=1e-6)


def test_the_median_is_zero():
    assert student_t_quantile(0.5, 4) == 0.0


@pytest.mark.parametrize(("p", "df"), [(0.0, 5), (1.0, 5), (math.nan, 5), (0.9, 0.5), (0.9, math.nan)])
def test_quantiles_outside_the_range_are_refused(p, df):
    with pytest.raises(ValueError, match=r"^(p|df) must be"):
        student_t_quantile(p, df)
