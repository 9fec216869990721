"""Student's t distribution: the share below a value, and the value below which a share lies."""

import math


def student_cdf(t: float, freedom: float) -> float:
    """Return the probability that a variable with so many degrees of freedom is below t.

    >>> round(student_cdf(2.2622, 9), 4)
    0.975
    """
    if math.isinf(t):
        return float(t > 0)
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail if t > 0 else tail


def student_quantile(share: float, freedom: float) -> float:
    """Return the value below which lies this share (0 < share < 1), by bisection.

    >>> round(student_quantile(0.975, 4), 3)
    2.776
    """
    low, high = -1.0, 1.0
    while student_cdf(low, freedom) > share:
        low *= 2
    while student_cdf(high, freedom) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction on the side where that is fast."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction 1 / (1 + d1 / (1 + d2 / (1 + ...))), evaluated from the front (Lentz)."""
    upper, lower = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = lower
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            lower = 1 / (1 + term * lower)
            upper = 1 + term / upper
            value *= lower * upper
        if abs(lower * upper - 1) < 1e-15:
            break
    return value
