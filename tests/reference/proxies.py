"""The proxy losses as printed, term by term, in numpy: slow and literal."""

import math

import numpy as np


def rows_of_unit_length(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def similarity_to_class(x, proxies, gamma):
    """Eq. 1 for one embedding (d,) and the proxies (K, d) of one class."""
    products = [float(x @ w) for w in proxies]
    weights = [math.exp((product - max(products)) / gamma) for product in products]
    return sum(a * s for a, s in zip(weights, products, strict=True)) / sum(weights)


def regularizer(proxies, eps=0.0):
    """Eq. 3 for proxies (C, K, d) of unit length."""
    classes, count, _ = proxies.shape
    if count == 1:
        return 0.0
    total = 0.0
    for w in proxies:
        for t in range(count):
            for s in range(t + 1, count):
                total += math.sqrt(max(0.0, 2 - 2 * float(w[s] @ w[t])) + eps)
    return total / (classes * count * (count - 1))


def multi_proxy_anchor(x, proxies, labels, variant, alpha, margin, gamma, tau):
    """Eqs. 6, 12 and 16 with the regulariser."""
    x, proxies = rows_of_unit_length(x), rows_of_unit_length(proxies)
    s = [[similarity_to_class(v, w, gamma) for w in proxies] for v in x]
    samples, classes = range(len(x)), range(len(proxies))

    def pull(i):
        return math.exp(-alpha * (s[i][labels[i]] - margin))

    def push(i, c):
        return math.exp(alpha * (s[i][c] + margin))

    if variant == "class":
        present = set(labels)
        value = sum(math.log(1 + sum(pull(i) for i in samples if labels[i] == c)) for c in present) / len(present)
        others = [math.log(1 + sum(push(i, c) for i in samples if labels[i] != c)) for c in classes]
        value += sum(others) / len(proxies)
    else:
        value = 0.0
        for i in samples:
            others = sum(push(i, c) for c in classes if c != labels[i])
            value += math.log(1 + pull(i) + others) if variant == "all-pairs" else math.log(1 + pull(i))
            value += 0.0 if variant == "all-pairs" else math.log(1 + others)
        value /= len(x)
    return value + tau * regularizer(proxies)


def proxy_nca(x, proxies, labels, temperature, probability):
    """Squared distances of unit vectors; the sum leaves out the own class unless the ratio is to be a probability."""
    x, proxies = rows_of_unit_length(x), rows_of_unit_length(proxies)
    total = 0.0
    for v, y in zip(x, labels, strict=True):
        near = [math.exp(-float(((v - w) ** 2).sum()) / temperature) for w in proxies]
        total -= math.log(near[y] / sum(value for c, value in enumerate(near) if probability or c != y))
    return total / len(x)
