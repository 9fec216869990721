"""The pair losses and miners as their papers print them, one loop an equation: slow, and independent of the library."""

import math
from itertools import combinations


def unit(v):
    norm = math.sqrt(sum(a * a for a in v))
    return [a / norm for a in v]


def dot(v, w):
    return sum(a * b for a, b in zip(v, w, strict=True))


def dist(v, w):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(v, w, strict=True)))


def all_pairs(labels):
    return list(combinations(range(len(labels)), 2))


def all_triplets(labels):
    n = range(len(labels))
    return [(a, p, q) for a in n for p in n for q in n if p != a and labels[p] == labels[a] and labels[q] != labels[a]]


def mean(values):
    return sum(values) / len(values) if values else 0.0


def contrastive(x, labels, pairs, margin):
    """Eq. 3.1 of the PROFS paper."""
    d = {(i, j): dist(x[i], x[j]) for i, j in pairs}
    return mean([d[i, j] ** 2 if labels[i] == labels[j] else max(0.0, margin - d[i, j]) ** 2 for i, j in pairs])


def triplet(x, triplets, margin):
    """Eq. 3.2."""
    return mean([max(0.0, dist(x[a], x[p]) ** 2 - dist(x[a], x[n]) ** 2 + margin) for a, p, n in triplets])


def margin_loss(x, labels, pairs, boundary, margin):
    """Eq. 3.3."""
    terms = []
    for i, j in pairs:
        d = dist(x[i], x[j])
        terms.append(max(0.0, d - boundary + margin if labels[i] == labels[j] else boundary + margin - d))
    return mean(terms)


def lifted(x, labels, alpha, allowed=None):
    """Song et al. (2016), Eq. 4, with only the pairs that ``allowed`` lets in."""
    keep = allowed or (lambda i, j: True)
    n = range(len(labels))
    terms = []
    for i, j in combinations(n, 2):
        if labels[i] == labels[j] and keep(i, j):
            pushes = [
                math.exp(alpha - dist(x[end], x[k]))
                for end in (i, j)
                for k in n
                if labels[k] != labels[end] and keep(end, k)
            ]
            terms.append(max(0.0, math.log(sum(pushes)) + dist(x[i], x[j])) ** 2 if pushes else 0.0)
    return mean(terms) / 2


def paired_off(labels):
    """First with second, third with fourth of each class."""
    waiting, pairs = {}, []
    for i, label in enumerate(labels):
        if label in waiting:
            pairs.append((waiting.pop(label), i))
        else:
            waiting[label] = i
    return pairs


def npair(x, labels, pairs):
    """Sohn (2016): each pair against the positives of the pairs of other classes."""
    positives = sorted({p for _, p in pairs})
    return mean(
        [
            math.log(1 + sum(math.exp(dot(x[a], x[q]) - dot(x[a], x[p])) for q in positives if labels[q] != labels[a]))
            for a, p in pairs
        ]
    )


def angular(x, labels, pairs, degrees):
    """Wang et al. (2017), in the N-pair form."""
    t = math.tan(math.radians(degrees)) ** 2
    positives = sorted({p for _, p in pairs})
    terms = []
    for a, p in pairs:
        both = [u + v for u, v in zip(x[a], x[p], strict=True)]
        own = 2 * (1 + t) * dot(x[a], x[p])
        terms.append(
            math.log(1 + sum(math.exp(4 * t * dot(both, x[q]) - own) for q in positives if labels[q] != labels[a]))
        )
    return mean(terms)


def hard_exemplars(x, labels, anchors):
    """Each anchor's positives in the order of the batch, the m-th with its m-th nearest negative."""
    triplets = []
    for a in anchors:
        positives = [p for p in range(len(labels)) if p != a and labels[p] == labels[a]]
        negatives = [n for n in range(len(labels)) if labels[n] != labels[a]]
        negatives.sort(key=lambda n: (dist(x[a], x[n]), n))
        triplets += [(a, p, n) for p, n in zip(positives, negatives, strict=False)]
    return triplets


def semi_hard(x, labels, margin):
    """All triplets whose negative is farther than the positive, by no more than the margin."""
    return [
        (a, p, n) for a, p, n in all_triplets(labels) if 0 < dist(x[a], x[n]) ** 2 - dist(x[a], x[p]) ** 2 <= margin
    ]
