"""The ranking losses as their papers print them, one loop an equation: slow, and independent of the library."""

import math


def counts_before(similarities, positives, others, temperature):
    """Eq. 2 and 3 of the PNP paper: for each positive i, the soft number of ``others`` (without i) before it."""
    counts = []
    for i in positives:
        total = 0.0
        for j in others:
            if j != i:
                x = (similarities[j] - similarities[i]) / temperature
                total += 1 / (1 + math.exp(-x)) if x > -700 else 0.0
        counts.append(total)
    return counts


def penalty(variant, r, alpha=4.0, b=2.0):
    """Eqs. 5, 7, 9, 12 and 13 of the PNP paper."""
    if variant == "O":
        return r
    if variant == "Iu":
        return (1 + r) * math.log(1 + r)
    if variant == "Ib":
        return (b * r - math.log(1 + b * r)) / b**2
    if variant == "Ds":
        return math.log(1 + r)
    assert variant == "Dq"
    return 1 - 1 / (1 + r) ** alpha


def similarities(rows, candidates):
    """Cosine similarities of lists of vectors."""

    def unit(v):
        norm = math.sqrt(sum(a * a for a in v))
        return [a / norm for a in v]

    rows, candidates = [unit(v) for v in rows], [unit(v) for v in candidates]
    return [[sum(a * b for a, b in zip(v, w, strict=True)) for w in candidates] for v in rows]


def _lists(labels, q, include_self):
    positives = [i for i, label in enumerate(labels) if label == labels[q] and (i != q or include_self)]
    negatives = [j for j, label in enumerate(labels) if label != labels[q]]
    has_other = sum(label == labels[q] for label in labels) > 1
    return (positives if has_other else []), negatives


def pnp(s, labels, variant, alpha=4.0, b=2.0, temperature=0.01, include_self=False):
    """The mean over queries that have a positive of the mean penalty of their positives."""
    losses = []
    for q in range(len(labels)):
        positives, negatives = _lists(labels, q, include_self)
        if positives:
            ranks = counts_before(s[q], positives, negatives, temperature)
            losses.append(sum(penalty(variant, r, alpha, b) for r in ranks) / len(ranks))
    return sum(losses) / len(losses) if losses else 0.0


def smooth_ap(s, labels, temperature=0.01, include_self=True):
    """Eq. 4 of the PNP paper, one minus it."""
    losses = []
    for q in range(len(labels)):
        positives, negatives = _lists(labels, q, include_self)
        if positives:
            before = counts_before(s[q], positives, negatives, temperature)
            among = counts_before(s[q], positives, positives, temperature)
            precisions = [(1 + p) / (1 + p + n) for p, n in zip(among, before, strict=True)]
            losses.append(1 - sum(precisions) / len(precisions))
    return sum(losses) / len(losses) if losses else 0.0


def average_precision_loss(s, labels):
    """One minus the mean average precision of ranked lists without ties."""
    losses = []
    for q in range(len(labels)):
        positives, _ = _lists(labels, q, include_self=False)
        if positives:
            order = sorted((j for j in range(len(labels)) if j != q), key=lambda j: -s[q][j])
            found = [rank for rank, j in enumerate(order, 1) if j in positives]
            losses.append(1 - sum(n / rank for n, rank in enumerate(found, 1)) / len(found))
    return sum(losses) / len(losses) if losses else 0.0


def topk_sets(s, y, k, margin):
    """Eqs. 4, 6, 7, 9 and 10 of the top-k paper, ties by index: the sets P and N of one query."""
    shat = [value + margin * (1 - positive) for value, positive in zip(s, y, strict=True)]
    order = sorted(range(len(s)), key=lambda i: (-shat[i], i))
    inside, outside = order[:k], order[k:]
    if sum(y) < k:
        p = [i for i in outside if y[i]]
        n = [i for i in inside if not y[i]]
        n = n[len(n) - len(p) :]
    else:
        n = [i for i in inside if not y[i]]
        p = [i for i in outside if y[i]][: len(n)]
    return p, n, shat


def topk_precision(s, y, k, margin):
    """Eq. 5: sum of shat over N minus sum of shat over P."""
    p, n, shat = topk_sets(s, y, k, margin)
    return sum(shat[i] for i in n) - sum(shat[i] for i in p)


def negatives_in_topk(s, y, k):
    """Eq. 2 of the top-k paper: negatives among the k most similar."""
    return sum(1 - y[i] for i in sorted(range(len(s)), key=lambda i: (-s[i], i))[:k])


def _triangle(value, centre, step):
    return max(0.0, 1 - abs(value - centre) / step)


def fastap(s, labels, bins):
    """Cakir et al. (2019): soft histograms of squared distances, every item in every bin."""
    step = 4 / bins
    losses = []
    for q in range(len(labels)):
        positives, negatives = _lists(labels, q, include_self=False)
        if not positives:
            continue
        total = found_before = all_before = 0.0
        for bin_number in range(bins + 1):
            found = sum(_triangle(2 - 2 * s[q][i], bin_number * step, step) for i in positives)
            wrong = sum(_triangle(2 - 2 * s[q][j], bin_number * step, step) for j in negatives)
            found_before += found
            all_before += found + wrong
            total += found * found_before / all_before if all_before > 0 else 0.0
        losses.append(1 - total / len(positives))
    return sum(losses) / len(losses) if losses else 0.0


def histogram(s, labels, bins):
    """Ustinova and Lempitsky (2016): over all unordered pairs."""
    step = 2 / bins
    n = len(labels)
    pairs = {same: [] for same in (True, False)}
    for i in range(n):
        for j in range(i + 1, n):
            pairs[labels[i] == labels[j]].append(s[i][j])
    if not pairs[True] or not pairs[False]:
        return 0.0
    total = positives_up_to = 0.0
    for bin_number in range(bins + 1):
        centre = -1 + bin_number * step
        shares = {same: sum(_triangle(v, centre, step) for v in values) / len(values) for same, values in pairs.items()}
        positives_up_to += shares[True]
        total += shares[False] * positives_up_to
    return total


def multi_similarity(s, labels, alpha, beta, base, epsilon):
    """Wang et al. (2019); ``epsilon`` None takes all pairs."""
    total = 0.0
    for q in range(len(labels)):
        positives = [s[q][i] for i in range(len(labels)) if i != q and labels[i] == labels[q]]
        negatives = [s[q][i] for i in range(len(labels)) if labels[i] != labels[q]]
        if epsilon is not None:
            hardest_positive = min(positives, default=math.inf)
            hardest_negative = max(negatives, default=-math.inf)
            positives = [v for v in positives if v < hardest_negative + epsilon]
            negatives = [v for v in negatives if v > hardest_positive - epsilon]
        total += math.log(1 + sum(math.exp(-alpha * (v - base)) for v in positives)) / alpha
        total += math.log(1 + sum(math.exp(beta * (v - base)) for v in negatives)) / beta
    return total / len(labels) if labels else 0.0


def blackbox(s, labels, interpolation, margin, measure):
    """Rolinek et al. (2020): the loss, and what stands for its gradient by the similarities (n, n)."""
    n = len(labels)
    gradient = [[0.0] * n for _ in range(n)]
    queries = [q for q in range(n) if labels.count(labels[q]) > 1]
    total = 0.0
    for q in queries:
        positives, negatives = _lists(labels, q, include_self=False)
        shifted = {i: s[q][i] - margin / 2 for i in positives} | {j: s[q][j] + margin / 2 for j in negatives}

        def rank(scores, i):
            return 1 + sum(scores[j] > scores[i] for j in scores)

        def among(scores, i, positives=positives):
            return 1 + sum(scores[j] > scores[i] for j in positives)

        by_rank = dict.fromkeys(shifted, 0.0)
        for i in positives:
            all_rank, own_rank = rank(shifted, i), among(shifted, i)
            if measure == "ap":
                total += (1 - own_rank / all_rank) / len(positives)
                by_rank[i] = own_rank / all_rank**2 / len(positives)
            else:
                wrong = all_rank - own_rank
                total += math.log(1 + math.log(1 + wrong)) / len(positives)
                by_rank[i] = 1 / (1 + math.log(1 + wrong)) / (1 + wrong) / len(positives)
        moved = {i: shifted[i] + interpolation * by_rank[i] for i in shifted}
        for i in shifted:
            gradient[q][i] = -(rank(shifted, i) - rank(moved, i)) / interpolation / len(queries)
    return (total / len(queries) if queries else 0.0), gradient


def recall_at_k(s, labels, ks, temperature, rank_temperature):
    """One minus the smooth recall@k of Patel et al. (CVPR 2022), the mean over k and over queries with a positive."""
    losses = []
    for q in range(len(labels)):
        positives, negatives = _lists(labels, q, False)
        if not positives:
            continue
        ranks = [1 + r for r in counts_before(s[q], positives, positives + negatives, temperature)]
        recalls = [sum(1 / (1 + math.exp(-(k - r) / rank_temperature)) for r in ranks) / min(k, len(ranks)) for k in ks]
        losses.append(1 - sum(recalls) / len(ks))
    return sum(losses) / len(losses) if losses else 0.0


def upper_step(x, temperature, delta, slope):
    """ROADMAP's H-: a sigmoid up to 0, half a step above it up to delta, linear beyond."""

    def soft(x):
        return 1 / (1 + math.exp(-x / temperature)) if x / temperature > -700 else 0.0

    if x > delta:
        return slope * (x - delta) + soft(delta) + 0.5
    return soft(x) + (0.5 if x > 0 else 0.0)


def upper_ranks(scores, relevances, temperature, delta, slope):
    """Rank and Hrank (HAPPIER, Eqs. 1 and 2) of what is relevant, with the upper step for what is less relevant."""
    found = []
    for i, own in enumerate(relevances):
        if own <= 0:
            continue
        rank, graded = 0.0, 0.0
        for j, other in enumerate(relevances):
            x = scores[j] - scores[i]
            if other < own:
                rank += upper_step(x, temperature, delta, slope)
            elif x >= 0:
                rank += 1
            graded += min(own, other) * (x >= 0)
        found.append((rank, graded))
    return found


def graded_ap(scores, relevances, *step):
    """H-AP of one list."""
    return sum(graded / rank for rank, graded in upper_ranks(scores, relevances, *step)) / sum(relevances)


def sup_ndcg(scores, relevances, *step):
    """nDCG of one list whose relevances are 0 and 1, from upper ranks."""
    ranks = [rank for rank, _ in upper_ranks(scores, relevances, *step)]
    best = sum(1 / math.log2(1 + place) for place in range(1, len(ranks) + 1))
    return sum(1 / math.log2(1 + rank) for rank in ranks) / best


def sup_recall(ks, rank_temperature):
    """Soft recall@k of one list, from upper ranks."""

    def measure(scores, relevances, *step):
        ranks = [rank for rank, _ in upper_ranks(scores, relevances, *step)]
        soft = [
            sum(1 / (1 + math.exp(-max(k - rank, -700) / rank_temperature)) for rank in ranks) / min(k, len(ranks))
            for k in ks
        ]
        return sum(soft) / len(ks)

    return measure


def calibration(s, labels, high, low):
    """ROADMAP's calibration: mean violations of positive pairs and of negative pairs, over those that violate."""
    pull, push = [], []
    for i, own in enumerate(labels):
        for j, other in enumerate(labels):
            if i != j and own == other:
                pull.append(high - s[i][j])
            elif i != j:
                push.append(s[i][j] - low)
    kept = [[x for x in part if x > 0] for part in (pull, push)]
    return sum(sum(part) / len(part) for part in kept if part)


def happier(s, paths, alpha, temperature, delta, slope, include_self, measure=graded_ap):
    """One minus H-AP or another measure, the mean over queries with something relevant.

    For H-AP the relevance is (l / L)^alpha / |Omega_l|, for other measures 1.
    """
    losses = []
    for q, own in enumerate(paths):
        items = [j for j in range(len(paths)) if j != q or include_self]
        shared = []
        for j in items:
            level = 0
            while level < len(own) and paths[j][level] == own[level]:
                level += 1
            shared.append(level)
        if not any(level for level, j in zip(shared, items, strict=True) if j != q):
            continue
        relevances = [(level / len(own)) ** alpha / shared.count(level) if level else 0.0 for level in shared]
        if measure is not graded_ap:
            relevances = [1.0 if level else 0.0 for level in shared]
        losses.append(1 - measure([s[q][j] for j in items], relevances, temperature, delta, slope))
    return sum(losses) / len(losses) if losses else 0.0
