"""Intervals, tests and sample sizes that count independent units, never tokens.

Every interval is at 95 %, for the mean over units (or a ratio of sums) in the population that the units come from:

| units | interval |
|---|---|
| under 6 | none |
| 6 to 30 | on each side the wider of Student's t and Hall's skewness-corrected t |
| over 30 | on each side the wider of t and the BCa bootstrap over units, its level widened from normal to t |
| all at the two bounds, or 0 and 1 | Clopper and Pearson's exact interval |
| all equal, statistic with bounds | the exact bound on the share of units that could have differed |
| two crossed factors | as with 6 to 30, the variances of both factors added |

Sources: Hall 1992, J. R. Stat. Soc. B 54, 221; Hesterberg 2015, Am. Stat. 69, 371; Owen 2007, Ann. Appl. Stat. 1, 386.
Why not t alone, nor BCa alone: coverage in percent on 20 000 samples (3 000 above 30 units), first t, then this rule:

| units | normal | gamma, shape 4 | exponential | lognormal, sigma 1 | Student, 3 df | uniform |
|---|---|---|---|---|---|---|
| 6 | 95.1, 96.7 | 93.3, 95.7 | 88.5, 94.1 | 82.0, 90.5 | 96.3, 97.2 | 94.0, 96.9 |
| 8 | 95.1, 96.4 | 93.5, 95.6 | 89.4, 94.5 | 83.2, 91.6 | 96.0, 96.8 | 94.3, 97.2 |
| 12 | 94.7, 95.7 | 93.9, 95.6 | 90.5, 95.2 | 85.0, 92.5 | 96.0, 96.4 | 94.7, 97.5 |
| 30 | 94.8, 95.4 | 94.4, 95.8 | 92.7, 95.9 | 87.9, 93.8 | 95.5, 95.7 | 95.1, 96.3 |
| 31 | 95.5, 95.7 | - | 92.9, 95.4 | 90.0, 93.9 | 95.9, 95.9 | - |
| 60 | 95.0, 95.4 | - | 93.9, 95.8 | 91.0, 94.1 | 95.6, 95.7 | - |

The price is 16 % of width at 8 units and 3 % at 30. A tail as long as a lognormal's with sigma 1 still misses (91 to
94 %): measure a median or a logarithm there. Plain BCa covered 92.6 % (exponential) and 89.3 % (Student) at 31 units.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, inf, isfinite, log, log1p, sqrt
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from helpers.errors import HookbookError

if TYPE_CHECKING:
    from transformer_lens.utilities.statistics import SuccessRateInterval

LEVEL = 0.95
FEWEST = 6
SMALL = 30
N_RESAMPLES = 9999
EXACT_FLIPS = 12
ALL_EQUAL = "exact bound, all units equal"

Ends = tuple[float, float]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval; `low` and `high` are None where no honest interval exists, and `method` says why.

    `n` is the number of independent units; for two crossed factors, that of the scarcer one.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    method: str


def mean_interval(values: ArrayLike, *, bounds: Sequence[float] | None = None, seed: int = 0) -> Interval:
    """Return the mean of one value per independent unit, with its interval (rule and coverage: see the module).

    Args:
        values: Float["unit"]; booleans, and zeros with ones, count as successes of a rate.
        bounds: smallest and largest possible value of the statistic; the interval is clipped to them, and exists even
            where all units are equal (accuracy 1.0 on each), when a point would claim certainty.
        seed: seeds the bootstrap; the order of the units does not matter.

    Raises:
        HookbookError: values empty, not finite, or outside the bounds.
    """
    x = _numbers(values, "values")
    if bounds is None and (_array(values).dtype == bool or set(x) == {0.0, 1.0}):
        bounds = (0.0, 1.0)
    x, (low, high) = _within(x, bounds)
    if x.size >= FEWEST and set(x) == {low, high}:
        rate = _exact_rate(x == high)
        ends = (low + (high - low) * end for end in (rate.ci_low, rate.ci_high))
        return Interval(float(x.mean()), *ends, x.size, "exact binomial")
    return _over_units(float(x.mean()), x, (low, high), lambda level: _bca((np.sort(x),), np.mean, level, seed))


def ratio_interval(
    numerators: ArrayLike, denominators: ArrayLike, *, bounds: Sequence[float] | None = None, seed: int = 0
) -> Interval:
    """Return sum over sum with its interval, units paired: the rule of `mean_interval` on the linearised ratio.

    Where the denominators' own 95 % t interval reaches zero there is no interval, since the ratio's would have no end.
    Coverage in percent on 10 000 samples of 8, 12 and 30 units: normal denominators 96.7, 96.5, 95.9; gamma
    denominators 95.2, 95.2, 94.9; exponential noise 94.1, 94.1, 95.0; counts of unequal size 94.0, 94.7, 95.1. The
    linearised t alone goes down to 90.7.

    Args:
        numerators: Float["unit"].
        denominators: Float["unit"].
        bounds: smallest and largest possible ratio, as in `mean_interval`.
        seed: seeds the bootstrap; the order of the units does not matter.

    Raises:
        HookbookError: values empty, not finite, of different lengths, or a ratio outside the bounds.
    """
    num, den = _numbers(numerators, "numerators"), _numbers(denominators, "denominators")
    if num.shape != den.shape:
        raise HookbookError(f"{num.size} numerators but {den.size} denominators: give one of each per unit.")
    if den[0] != 0 and (den == den[0]).all():
        return mean_interval(num / den, bounds=bounds, seed=seed)
    value, n = float(_ratio(num, den)), num.size
    if n >= FEWEST and not _clear_of_zero(_t(den.mean(), den.var(ddof=1) / n, n - 1)):
        return _no_interval(value, n, "the sum of the denominators is not clear of zero")
    _, limits = _within(np.array([value]), bounds)
    order = np.lexsort((den, num))
    pairs = num[order], den[order]
    return _over_units(value, _linearised(num, den), limits, lambda level: _bca(pairs, _ratio, level, seed))


def crossed_interval(
    values: ArrayLike,
    units_a: Sequence[object] | np.ndarray,
    units_b: Sequence[object] | np.ndarray,
    *,
    denominators: ArrayLike | None = None,
    bounds: Sequence[float] | None = None,
) -> Interval:
    """Return the mean over the cells of two crossed unit factors, such as template and word pair, with its interval.

    The variance is the sum of the two one-way cluster variances, which counts the noise of a cell twice and so errs on
    the safe side; degrees of freedom are those of the scarcer factor; cells may be missing. No interval with under 6
    units of either factor. Coverage in percent on 2 500 samples of 8 x 8, 8 x 12 and 30 x 30 units: both factors and
    the noise equally strong 97, 98, 96 (normal) and 97, 97, 97 (exponential); one factor alone 96, 97, 95 and 94, 95,
    96; noise alone over 99; 30 % of the cells missing 98, 97, 96. Cells taken for units: 58, 53, 33 in the first case.

    Args:
        values: Float["cell"]; the numerators where denominators are given.
        units_a: the first factor's unit of each cell.
        units_b: the second factor's unit of each cell.
        denominators: Float["cell"]; makes the value a sum over a sum.
        bounds: smallest and largest possible value of the statistic, as in `mean_interval`.

    Raises:
        HookbookError: values empty, not finite, outside the bounds, of different lengths, or two values for one cell.
    """
    num = _numbers(values, "values")
    den = np.ones_like(num) if denominators is None else _numbers(denominators, "denominators")
    if not num.size == den.size == len(units_a) == len(units_b):
        raise HookbookError("values, denominators and units differ in length: give one entry of each per cell.")
    factors = [pd.factorize(np.asarray(units)) for units in (units_a, units_b)]
    if len(set(zip(*(codes for codes, _ in factors), strict=True))) < num.size:
        raise HookbookError("some cells have several values: average them first.")
    value, n = float(_ratio(num, den)), min(len(names) for _, names in factors)
    if n < FEWEST:
        return _no_interval(value, n, f"fewer than {FEWEST} units of a factor")
    if (den != den[0]).any():
        below = crossed_interval(den, units_a, units_b)
        if below.low is not None and not _clear_of_zero((below.low, below.high)):
            return _no_interval(value, n, "the sum of the denominators is not clear of zero")
    _, limits = _within(num / den if (den == den[0]).all() else np.array([value]), bounds)
    cells = _linearised(num, den)
    if _all_equal(cells):
        return _of_equals(value, n, limits)
    # what each unit adds to the mean over cells, scaled so that the mean over units is the mean over cells
    parts = [np.bincount(codes, cells - value) * len(names) / cells.size for codes, names in factors]
    # the cells' own variance is a floor: margins can cancel by accident
    variance = max(sum(part.var(ddof=1) / part.size for part in parts), cells.var(ddof=1) / cells.size)
    third = sum(stats.kstat(part, 3) / part.size**2 for part in parts)
    ends = _t(value, variance, n - 1), _hall(value, variance, third, n - 1)
    return _wider(value, *ends, limits, n, "two-way, wider of t and Hall")


def sign_flip_max_t(
    effects: Float[np.ndarray, "component unit"], *, n_permutations: int = 10_000, seed: int = 0
) -> Float[np.ndarray, "component"]:
    """Return a p-value per component, corrected for the search over all of them.

    Single-step max-T (Westfall and Young 1993), two-sided, on the studentised mean, so that loud and quiet components
    compete fairly. A unit's effects change sign together, which keeps the correlation between components; the null is
    that they are symmetric about zero. Up to 12 units all sign patterns are enumerated and the p-value is exact (never
    below 2 / 2**units, so that under 6 units nothing passes .05); above, it is (hits + 1) / (n_permutations + 1). A tie
    with the observed statistic is a hit. A component that is the same and not zero on all units is as extreme as can
    be; one that is zero on all has p = 1. Family-wise error at .05 on 2 000 nulls of 40 correlated components of 6, 8,
    20 and 30 units: 3.7, 4.5, 5.2, 5.1 % (normal), but 5.8, 8.3, 8.7, 7.6 % where effects are exponential about a mean
    of zero, and so not symmetric: there confirm on held-out units.

    Args:
        effects: a row per head, layer or neuron searched; a column per independent unit.
        n_permutations: random sign patterns, drawn only above 12 units.
        seed: seeds them.

    Raises:
        HookbookError: not a matrix, empty, or not finite.
    """
    x = _array(effects).astype(float)
    if x.ndim != 2 or x.size == 0 or not np.isfinite(x).all():
        raise HookbookError("effects must be a matrix [component, unit] of finite numbers: drop other units openly.")
    n_units = x.shape[1]
    # t is a monotone function of mean over root mean square, and flips leave the latter as it is
    scale = np.sqrt((x**2).mean(axis=1, keepdims=True))
    standard = np.divide(x, scale * n_units, out=np.zeros_like(x), where=scale > 0)
    exact = n_units <= EXACT_FLIPS
    if exact:  # a pattern and its mirror image give the same statistic, so the last unit keeps its sign
        signs = 1.0 - 2.0 * (np.arange(2 ** (n_units - 1))[:, None] >> np.arange(n_units) & 1)
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(n_permutations, n_units))
    step = max(1, 4_000_000 // len(x))
    largest = [np.abs(signs[i : i + step] @ standard.T).max(axis=1) for i in range(0, len(signs), step)]
    observed = np.abs(standard.sum(axis=1)) - 1e-10  # sums in another order differ by less
    hits = len(signs) - np.searchsorted(np.sort(np.concatenate(largest)), observed)
    return hits / len(signs) if exact else (hits + 1) / (len(signs) + 1)


def equivalent(interval: Interval, low: float, high: float) -> bool:
    """Say whether the whole interval lies between the margins: an absence shown, not a difference missed.

    With a 95 % interval these are two one-sided tests at 2.5 % each. False where there is no interval.
    """
    return interval.low is not None and low < interval.low and interval.high < high


def units_needed(values: ArrayLike | Interval, region: tuple[float, float]) -> int | None:
    """Return how many units of this mean and spread would put the interval inside or wholly outside the region.

    Normal approximation, refined by t; the exact bound where all units are equal. None if the mean sits on the region's
    edge or the spread is unknown. At least 6. A plan, as uncertain as the spread that it starts from.

    Args:
        values: Float["unit"], or an `Interval` made of them: for ratios, bounded statistics whose units are all equal,
            and crossed factors (the count then is the scarcer factor's, the other growing in proportion).
        region: its low and high edge, infinite where open.

    Raises:
        HookbookError: values empty or not finite.
    """
    if not isinstance(values, Interval):
        x = _numbers(values, "values")
        ends = _t(x.mean(), x.var(ddof=1) / x.size, x.size - 1) if not _all_equal(x) else (None, None)
        values = Interval(float(x.mean()), *ends, x.size, "t")
    low, high = region
    value = values.value
    if values.low is None or value in region:
        return None
    below, above = value - values.low, values.high - value
    if low < value < high:
        return max(_units_until(value - low, below, values), _units_until(high - value, above, values))
    return _units_until(value - high, below, values) if value > high else _units_until(low - value, above, values)


def _units_until(gap: float, half_width: float, seen: Interval) -> int:
    """The number of units at which the half-width falls below the gap."""
    if seen.method == ALL_EQUAL:
        share = gap / half_width * _exact_rate(np.zeros(seen.n, bool)).ci_high if half_width else inf
        return FEWEST if share >= 1 else max(FEWEST, ceil(log((1 - LEVEL) / 2) / log1p(-share)))
    spread = half_width * sqrt(seen.n) / _t_quantile(seen.n - 1)
    needed = max(FEWEST, ceil((stats.norm.ppf((1 + LEVEL) / 2) * spread / gap) ** 2))
    while needed < 1000 and _t_quantile(needed - 1) * spread / sqrt(needed) >= gap:
        needed += 1
    return needed


def _over_units(value: float, x: Float[np.ndarray, "unit"], limits: Ends, bca: Callable[[float], Ends]) -> Interval:
    """The interval of the mean of x, which is the statistic or linear in it; bca takes a level."""
    n = x.size
    if n < FEWEST:
        return _no_interval(value, n, f"fewer than {FEWEST} units")
    if _all_equal(x):
        return _of_equals(value, n, limits)
    variance = x.var(ddof=1) / n
    plain = _t(value, variance, n - 1)
    if n <= SMALL:
        hall = _hall(value, variance, stats.kstat(x, 3) / n**2, n - 1)
        return _wider(value, plain, hall, limits, n, "wider of t and Hall")
    # Hesterberg's expansion: BCa starts from normal quantiles and from a variance that divides by n
    level = 2 * stats.norm.cdf(_t_quantile(n - 1) * sqrt(n / (n - 1))) - 1
    return _wider(value, plain, bca(level), limits, n, "wider of t and BCa")


@cache
def _t_quantile(df: int) -> float:
    return float(stats.t.ppf((1 + LEVEL) / 2, df))


def _t(value: float, variance: float, df: int) -> Ends:
    half = _t_quantile(df) * sqrt(variance)
    return value - half, value + half


def _hall(value: float, variance: float, third: float, df: int) -> Ends:
    """Hall's cubic transformation of t, inverted; variance and third are the estimate's own cumulants."""
    skew, quantile = third / variance**1.5, _t_quantile(df)
    if abs(skew) < 1e-9:
        return _t(value, variance, df)
    low, high = ((np.cbrt(1 + skew * (q - skew / 6)) - 1) * 3 / skew * sqrt(variance) for q in (quantile, -quantile))
    return value - low, value - high


def _bca(samples: tuple[np.ndarray, ...], statistic: Callable, level: float, seed: int) -> Ends:
    # nearly constant samples, or a resampled denominator of zero: BCa is undefined and returns NaN, and t stands alone
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        ends = stats.bootstrap(
            samples,
            statistic,
            paired=True,
            n_resamples=N_RESAMPLES,
            batch=max(1, 1_000_000 // samples[0].size),
            vectorized=True,
            confidence_level=level,
            method="BCa",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return ends.low, ends.high


def _wider(value: float, first: Ends, second: Ends, limits: Ends, n: int, method: str) -> Interval:
    low, high = np.fmin(first[0], second[0]), np.fmax(first[1], second[1])
    return Interval(value, float(max(low, limits[0])), float(min(high, limits[1])), n, method)


def _of_equals(value: float, n: int, limits: Ends) -> Interval:
    """All units equal: at most a share of the population could differ, and that by no more than the bounds allow."""
    low, high = limits
    if not isfinite(high - low):
        return _no_interval(value, n, "all units are equal and the statistic has no bounds, so its spread is unknown")
    share = _exact_rate(np.zeros(n, bool)).ci_high
    return Interval(value, value - share * (value - low), value + share * (high - value), n, ALL_EQUAL)


def _exact_rate(successes: np.ndarray) -> "SuccessRateInterval":
    # imported late: TransformerLens takes seconds to import, and the command line shows ledgers without it
    from transformer_lens.utilities.statistics import success_rate_ci

    return success_rate_ci(successes.tolist(), confidence=LEVEL)


def _no_interval(value: float, n: int, why: str) -> Interval:
    return Interval(value, None, None, n, f"no interval: {why}")


def _array(values: ArrayLike) -> np.ndarray:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _numbers(values: ArrayLike, name: str) -> Float[np.ndarray, "unit"]:
    x = _array(values).astype(float)
    if x.ndim != 1 or x.size == 0:
        raise HookbookError(f"{name} must be a list of one number per unit, got the shape {x.shape}.")
    if bad := (~np.isfinite(x)).sum():
        raise HookbookError(f"{bad} of {x.size} {name} are not finite: drop those units openly before measuring.")
    return x


def _within(x: Float[np.ndarray, "unit"], bounds: Sequence[float] | None) -> tuple[np.ndarray, Ends]:
    low, high = (-inf, inf) if bounds is None else bounds
    slack = 1e-6 * (high - low if isfinite(high - low) else 1)  # what float32 can add to an accuracy of 1
    if x.min() < low - slack or x.max() > high + slack:
        reach = f"values reach from {x.min():.4g} to {x.max():.4g}"
        raise HookbookError(f"{reach}, outside the bounds [{low:g}, {high:g}]: mend the statistic or its bounds.")
    return x.clip(low, high), (float(low), float(high))


def _all_equal(x: Float[np.ndarray, "unit"]) -> bool:
    return bool(np.ptp(x) <= 1e-12 * np.abs(x).max())


def _clear_of_zero(ends: Ends) -> bool:
    return ends[0] > 0 or ends[1] < 0


def _ratio(num: np.ndarray, den: np.ndarray, axis: int = -1) -> np.ndarray | float:
    with np.errstate(divide="ignore", invalid="ignore"):  # callers refuse denominators near zero
        return num.sum(axis) / den.sum(axis)


def _linearised(num: np.ndarray, den: np.ndarray) -> np.ndarray:
    ratio = _ratio(num, den)
    return ratio + (num - ratio * den) / den.mean()
