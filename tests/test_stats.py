"""Coverage and error rates by simulation, exact cases against independent oracles, and the refusals."""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats
from transformer_lens.utilities.statistics import sign_flip_permutation_pvalue

from helpers.errors import HookbookError
from helpers.stats import (
    ALL_EQUAL,
    Interval,
    crossed_interval,
    equivalent,
    mean_interval,
    ratio_interval,
    sign_flip_max_t,
    units_needed,
)

# name -> (sampler, true mean)
PLAIN = (lambda rng, shape: rng.normal(size=shape), 0.0)
SKEWED = (lambda rng, shape: rng.gamma(4, size=shape), 4.0)
LONG_TAILED = (lambda rng, shape: rng.exponential(size=shape), 1.0)
HEAVY_TAILED = (lambda rng, shape: rng.standard_t(3, size=shape), 0.0)


def coverage(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([i.low <= truth <= i.high for i in intervals]))


def clustered(rng: np.random.Generator, repeats: int, n: int) -> np.ndarray:
    """[repeat, unit, token]: skewed tokens that share their unit's skewed level; mean 4."""
    levels = rng.gamma(4, size=(repeats, n, 1))
    return levels + rng.exponential(size=(repeats, n, 20)) - 1


@pytest.mark.parametrize("n", [8, 12, 30])
@pytest.mark.parametrize("population", [PLAIN, SKEWED], ids=["plain", "gamma, shape 4"])
def test_coverage_is_within_two_points_of_nominal(population, n):
    draw, truth = population
    samples = draw(np.random.default_rng(n), (3000, n))
    assert coverage([mean_interval(x) for x in samples], truth) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("n", [8, 12, 30])
def test_clustered_tokens_need_units(n):
    tokens = clustered(np.random.default_rng(n), 3000, n)
    assert coverage([mean_interval(x) for x in tokens.mean(axis=2)], 4) == pytest.approx(0.95, abs=0.02)
    # the mistake this guards against: tokens taken for units
    assert np.mean(scipy_stats.ttest_1samp(tokens.reshape(3000, -1), 4, axis=1).pvalue > 0.05) < 0.75


@pytest.mark.parametrize("population", [PLAIN, SKEWED, LONG_TAILED], ids=["plain", "gamma, shape 4", "exponential"])
def test_coverage_of_the_bootstrap(population, monkeypatch):
    monkeypatch.setattr("helpers.stats.N_RESAMPLES", 1999)  # for speed; measured with 9999 as well
    draw, truth = population
    samples = draw(np.random.default_rng(60), (800, 60))
    intervals = [mean_interval(x) for x in samples]
    assert {i.method for i in intervals} == {"wider of t and BCa"}
    assert coverage(intervals, truth) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("n", [8, 12, 30])
@pytest.mark.parametrize("population", [LONG_TAILED, HEAVY_TAILED], ids=["exponential", "Student, 3 df"])
def test_neither_long_nor_heavy_tails_undercover(population, n):
    """Where t alone covers 89 to 93 % (exponential), and Hall's or BCa alone 89 to 93 % (Student)."""
    draw, truth = population
    samples = draw(np.random.default_rng(n), (2000, n))
    assert coverage([mean_interval(x) for x in samples], truth) > 0.935


@pytest.mark.parametrize("n", [8, 12, 30])
def test_coverage_of_ratios(n):
    rng = np.random.default_rng(n)
    recovered, per_unit_counts = [], []
    for _ in range(2000):
        gap = rng.normal(4, 1.5, n)
        recovered.append(ratio_interval(0.8 * gap + rng.normal(0, 0.8, n), gap))
        items = rng.integers(2, 30, n)
        per_unit_counts.append(ratio_interval(rng.binomial(items, rng.beta(8, 2, n)), items, bounds=(0, 1)))
    assert coverage(recovered, 0.8) == pytest.approx(0.95, abs=0.02)
    assert coverage(per_unit_counts, 0.8) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("n_a", "n_b"), [(8, 8), (8, 12), (30, 30)])
@pytest.mark.parametrize("strength", [(1, 1), (1, 0), (0, 1)], ids=["both", "first", "second"])
def test_crossed_units_cover_and_cells_do_not(n_a, n_b, strength):
    rng = np.random.default_rng(n_a * n_b)
    a, b = np.repeat(np.arange(n_a), n_b), np.tile(np.arange(n_b), n_a)
    kept = rng.random(a.size) < 0.9
    right, naive = [], []
    for _ in range(1000):
        x = (
            strength[0] * rng.normal(size=n_a)[a]
            + strength[1] * rng.normal(size=n_b)[b]
            + 0.5 * rng.normal(size=a.size)
        )
        right.append(crossed_interval(x[kept], a[kept], b[kept]))
        naive.append(scipy_stats.ttest_1samp(x, 0).pvalue > 0.05)
    # wide by design where both factors matter, never narrow
    assert 0.93 <= coverage(right, 0) <= 0.985
    assert np.mean(naive) < 0.75


def test_crossed_ratio_covers():
    rng = np.random.default_rng(0)
    a, b = np.repeat(np.arange(8), 12), np.tile(np.arange(12), 8)
    intervals = []
    for _ in range(1000):
        below = rng.gamma(6, size=96) * np.exp(0.3 * rng.normal(size=8))[a]
        above = below * (2 + rng.normal(size=8)[a] + rng.normal(size=12)[b] + rng.normal(size=96))
        intervals.append(crossed_interval(above, a, b, denominators=below))
    assert 0.93 <= coverage(intervals, 2) <= 0.985


def correlated_nulls(rng, n_components, n_units):
    mixing, loudness = rng.normal(size=(n_components, 5)), np.exp(rng.normal(size=(n_components, 1)))
    return loudness * (mixing @ rng.normal(size=(5, n_units)) + 0.7 * rng.normal(size=(n_components, n_units)))


@pytest.mark.parametrize("n_units", [8, 20])
def test_a_search_finds_nothing_where_nothing_is(n_units):
    rng = np.random.default_rng(n_units)
    smallest = [
        sign_flip_max_t(correlated_nulls(rng, 40, n_units), n_permutations=500, seed=i).min() for i in range(1000)
    ]
    assert 0.03 <= np.mean(np.array(smallest) <= 0.05) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 1000)
    # the mistake this guards against: each component tested by itself
    rng = np.random.default_rng(n_units)
    alone = [scipy_stats.ttest_1samp(correlated_nulls(rng, 40, n_units), 0, axis=1).pvalue.min() for _ in range(300)]
    assert np.mean(np.array(alone) <= 0.05) > 0.3


def test_a_search_finds_the_quiet_but_steady_component():
    rng = np.random.default_rng(0)
    effects = np.vstack([10 * rng.normal(size=(50, 20)), 0.01 + 0.005 * rng.normal(size=(1, 20))])
    p = sign_flip_max_t(effects)
    assert p[-1] < 0.01 and (p[:-1] > 0.05).all()


def test_one_component_is_the_library_test():
    effects = torch.from_numpy(np.random.default_rng(0).normal(0.5, 1, size=(1, 10)))
    assert sign_flip_max_t(effects)[0] == pytest.approx(float(sign_flip_permutation_pvalue(effects)[0]))


def test_permutations_approach_the_enumeration(monkeypatch):
    effects = np.random.default_rng(1).normal(0.4, 1, size=(5, 11))
    exact = sign_flip_max_t(effects)
    monkeypatch.setattr("helpers.stats.EXACT_FLIPS", 0)
    drawn = sign_flip_max_t(effects, n_permutations=20_000, seed=3)
    assert drawn == pytest.approx(exact, abs=0.015) and (drawn != exact).any()
    assert (drawn == sign_flip_max_t(effects, n_permutations=20_000, seed=3)).all()


def test_constant_components_are_extreme_and_zero_ones_nothing():
    p = sign_flip_max_t(np.vstack([np.full(8, 2.0), np.zeros(8), np.repeat([1.0, -1.0, 2.0, -2.0], 2)]))
    assert p.tolist() == [2 / 2**8, 1.0, 1.0]


def test_fewer_than_six_units_have_no_interval():
    for interval in (
        mean_interval([1, 2, 3, 4, 5]),
        mean_interval([True] * 5),
        ratio_interval([1, 2, 3, 4, 5], [2, 3, 4, 5, 7]),
        crossed_interval(np.arange(35.0), np.repeat(range(5), 7), np.tile(range(7), 5)),
    ):
        assert (interval.low, interval.high, interval.n) == (None, None, 5)
        assert "fewer than 6" in interval.method


def test_rates_are_exact():
    successes = [1] * 7 + [0] * 3
    oracle = scipy_stats.binomtest(7, 10).proportion_ci(method="exact")
    for given in (successes, np.array(successes, bool), torch.tensor(successes, dtype=torch.bool)):
        interval = mean_interval(given)
        assert (interval.low, interval.high) == pytest.approx((oracle.low, oracle.high))
    shifted = mean_interval(2 * np.array(successes) - 1, bounds=(-1, 1))
    assert (shifted.low, shifted.high) == pytest.approx((2 * oracle.low - 1, 2 * oracle.high - 1))


def test_a_perfect_score_is_no_certainty():
    oracle = scipy_stats.binomtest(8, 8).proportion_ci(method="exact")
    cells = crossed_interval(np.ones(96), np.repeat(range(8), 12), np.tile(range(12), 8), bounds=(0, 1))
    counts = ratio_interval([3, 4, 5, 6, 7, 8, 9, 10], [3, 4, 5, 6, 7, 8, 9, 10], bounds=(0, 1))
    for interval in (mean_interval([1.0] * 8, bounds=(0, 1)), mean_interval([True] * 8), cells, counts):
        assert (interval.low, interval.high) == pytest.approx((oracle.low, 1))
    assert mean_interval([0.0] * 8, bounds=(0, 1)).high == pytest.approx(1 - oracle.low)
    inner = mean_interval([0.25] * 8, bounds=(0, 1))
    assert inner.low == pytest.approx(0.25 * oracle.low) and inner.low < 0.25 < inner.high


def test_equal_units_of_an_unbounded_statistic_have_no_interval():
    third = 0.1 + 0.2  # not 0.3: equal but for rounding
    for interval in (mean_interval([0.3] * 7 + [third]), ratio_interval([1, 2, 3, 4, 5, 6], [2, 4, 6, 8, 10, 12])):
        assert interval.low is None and "spread is unknown" in interval.method


def test_intervals_stay_within_bounds():
    x = [0.99, 0.98, 1.0, 0.97, 1.0, 0.9]
    assert mean_interval(x).high > 1
    assert mean_interval(x, bounds=(0, 1)).high == 1
    assert mean_interval([*x[:-1], 1 + 1e-8], bounds=(0, 1)).high == 1  # float32's rounding


def test_a_ratio_without_a_sure_denominator_has_no_interval():
    assert "denominators" in ratio_interval([1.0] * 6, [1, -1, 2, -2, 1, -0.5]).method
    zero = ratio_interval([1.0] * 6, [1, -1, 2, -2, 1, -1])
    assert zero.low is None and not np.isfinite(zero.value)
    a, b = np.repeat(range(6), 6), np.tile(range(6), 6)
    assert "denominators" in crossed_interval(np.ones(36), a, b, denominators=np.resize([1, -1, 2, -1.9], 36)).method


def test_equal_denominators_make_a_mean():
    x = np.random.default_rng(0).normal(size=10)
    assert ratio_interval(x, np.full(10, 2.0)) == mean_interval(x / 2)


def test_the_order_of_units_does_not_matter_and_the_seed_hardly():
    rng = np.random.default_rng(0)
    x, below = rng.gamma(2, size=50), rng.gamma(6, size=50)
    turned = rng.permutation(50)
    for one, other in (
        (mean_interval(x), mean_interval(x[turned])),
        (ratio_interval(x, below), ratio_interval(x[turned], below[turned])),
    ):
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-12)
    width = mean_interval(x).high - mean_interval(x).low
    assert mean_interval(x, seed=1).high == pytest.approx(mean_interval(x).high, abs=0.05 * width)


def test_scale_and_shift_carry_over():
    x = np.random.default_rng(0).exponential(size=10)
    plain, moved = mean_interval(x), mean_interval(5 - 2 * x)
    assert (moved.low, moved.high) == pytest.approx((5 - 2 * plain.high, 5 - 2 * plain.low))


def test_the_second_factor_counts_like_the_first():
    rng = np.random.default_rng(0)
    x, a, b = rng.normal(size=70), np.repeat(list("abcdefg"), 10), np.tile(range(10), 7)
    assert crossed_interval(x, a, b).low == pytest.approx(crossed_interval(x, b, a).low)


def test_margins_that_cancel_leave_the_cells_variance():
    a, b = np.repeat(range(6), 6), np.tile(range(6), 6)
    board = crossed_interval((-1.0) ** (a + b), a, b)
    assert board.high - board.low > 0.5


def test_equivalence_needs_the_whole_interval():
    assert equivalent(Interval(0, -0.1, 0.1, 8, "t"), -0.2, 0.2)
    assert not equivalent(Interval(0, -0.1, 0.3, 8, "t"), -0.2, 0.2)
    assert not equivalent(Interval(0, None, None, 4, "none"), -0.2, 0.2)


def test_that_many_units_do_settle_it():
    rng = np.random.default_rng(0)
    x = rng.normal(0.75, 0.1, 8)
    x += 0.75 - x.mean()
    for region in ((0.7, np.inf), (-np.inf, 0.78), (0.7, 0.79), (0.6, 0.73), (0.8, np.inf)):
        needed = units_needed(x, region)
        edge = min(abs(0.75 - end) for end in region)
        half = [scipy_stats.t.ppf(0.975, n - 1) * x.std(ddof=1) / np.sqrt(n) for n in (needed, needed - 1)]
        assert half[0] < edge and (half[1] >= edge or needed == 6)
    assert units_needed(x, (0.75, 1)) is None  # on the edge
    assert units_needed([0.5] * 8, (0.7, 1)) is None  # no spread known
    assert units_needed(x, (0.75 - 1e-9, 1)) > 10**12  # and no endless search


def test_units_for_a_perfect_score_follow_the_exact_bound():
    needed = units_needed(mean_interval([1.0] * 8, bounds=(0, 1)), (0.95, np.inf))
    assert (
        mean_interval([1.0] * needed, bounds=(0, 1)).low
        >= 0.95
        > mean_interval([1.0] * (needed - 1), bounds=(0, 1)).low
    )
    assert units_needed(Interval(1.0, None, None, 4, "none"), (0.95, np.inf)) is None
    assert mean_interval([1.0] * 8, bounds=(0, 1)).method == ALL_EQUAL


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mean_interval([]), "one number per unit"),
        (lambda: mean_interval([[1, 2], [3, 4]]), "shape"),
        (lambda: mean_interval([1, np.nan, 3]), "1 of 3 values are not finite"),
        (lambda: mean_interval([0.5, 1.2], bounds=(0, 1)), "outside the bounds"),
        (lambda: ratio_interval([1, 2], [1]), "one of each per unit"),
        (lambda: ratio_interval([3, 4, 5], [1, 2, 3], bounds=(0, 1)), "outside the bounds"),
        (lambda: crossed_interval([1, 2], ["a", "a"], ["x", "x"]), "average"),
        (lambda: crossed_interval([1, 2], ["a"], ["x", "y"]), "differ in length"),
        (lambda: sign_flip_max_t(np.zeros(4)), "component, unit"),
        (lambda: sign_flip_max_t(np.array([[1, np.inf]])), "finite"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, words):
    with pytest.raises(HookbookError, match=words):
        call()


def test_denominators_that_can_cancel_warn_nobody():
    denominators = np.repeat([1.0, 0.0, -1.0], [14, 14, 4])  # clear of zero in sum, but not in every resample
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interval = ratio_interval(denominators + np.tile([0.0, 1.0, 0.0, -1.0], 8), denominators)
    assert interval.low < interval.value < interval.high
