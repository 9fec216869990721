"""What follows from the papers' equations alone: PNP's curves and its toy, and MPA's table of metrics."""

from typing import Any

import numpy as np
import torch
from torch import nn

from tophit.evaluation import RankedQueries, parse_metric, retrieval_metrics
from tophit.figures import Drawing
from tophit.figures.style import COLUMN, MARKERS, PAGE, SERIES, house_style, new_figure, series
from tophit.losses import PNPLoss
from tophit.losses.pnp import VARIANTS
from tophit.papers.entries import find_entry, paper_title
from tophit.papers.measured_rows import Cell, MeasuredRow, MeasuredTable

_ALPHA, _B = 2.0, 2.0  # as in the paper's Figure 5
_SHOWN = ("O", "Iu", "Ib", "Ds", "Dq")
_LISTS = ("1000000000", "1000000001", "1010000000", "1010001001", "1111000000")
_PRINTED = (
    (100, 10, 25.0, 10.0, 39.0),
    (100, 20, 25.0, 12.0, 50.3),
    (100, 20, 41.7, 16.7, 58.6),
    (100, 40, 41.7, 25.0, 82.9),
    (100, 40, 100.0, 40.0, 100.0),
)
_METRICS = ("recall@10", "precision@10", "MAP@R", "MAP@10", "ndcg@10")
_RELEVANT = 4
_TOY_SEEDS = 3
Points = tuple[torch.Tensor, torch.Tensor]  # (n, 2) and their labels (n,)


def compute(name: str) -> tuple[MeasuredTable, list[Drawing]]:
    """Return a table or figure that needs no data."""
    entry = find_entry(name)
    drawing = {"derivatives": _derivatives, "relation": _relation, "toy": _toy}.get(entry.draws)
    columns = () if drawing else _METRICS
    rows = [] if drawing else _metric_rows()
    notes = [] if drawing else ["Ours / the paper's, in percent. A query with four relevant items and ten results."]
    table = MeasuredTable(name, paper_title(name), entry.caption, "", columns, rows, notes)
    return table, [drawing()] if drawing else []


def _metric_rows() -> list[MeasuredRow]:
    rows = []
    for shown, printed in zip(_LISTS, _PRINTED, strict=True):
        ranks = [place for place, hit in enumerate(shown, 1) if hit == "1"]
        missing = [1000 + extra for extra in range(_RELEVANT - len(ranks))]  # relevant items that are not among the ten
        query = RankedQueries(0, np.asarray([_RELEVANT]), np.asarray(ranks + missing))
        ours = [100 * float(parse_metric(metric)(query)[0]) for metric in _METRICS]
        cells = {m: Cell(o, None, float(p)) for m, o, p in zip(_METRICS, ours, printed, strict=True)}
        rows.append(MeasuredRow(" ".join(shown), False, 1, cells))
    return rows


def _slope_and_value(variant: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the derivative and the value of a variant for x (n,) negatives before a positive."""
    made, ranks = VARIANTS[variant](_ALPHA, _B), torch.from_numpy(x)
    return made.derivative(ranks).numpy(), made.value(ranks).numpy()


def _derivatives() -> Drawing:
    x = np.linspace(0, 10, 201)
    numbers: dict[str, Any] = {"negatives before": x}
    with house_style():
        figure = new_figure(PAGE, 2.4)
        left, right = figure.subplots(1, 2)
        for number, variant in enumerate(_SHOWN):
            slope, value = _slope_and_value(variant, x)
            left.plot(x, slope, label=f"PNP-{variant}", **series(number))
            right.plot(x, value, **series(number))
            numbers |= {f"derivative of {variant}": slope, f"loss of {variant}": value}
        left.set(xlabel="negatives before the positive, R", ylabel="derivative", ylim=(0, 4))
        right.set(xlabel="negatives before the positive, R", ylabel="loss", ylim=(0, 10))
        figure.legend(loc="outside upper center", ncols=5)
    caption = (
        "How strongly a positive with R negatives before it is pushed (left), and its loss (right), with alpha = 2 and "
        "b = 2. PNP-Iu is as printed in Eq. 7, whose derivative is log(1 + R) + 1 and not Eq. 6's log(1 + R)."
    )
    return Drawing("derivatives", "The variants of PNP", caption, numbers, figure)


def _relation() -> Drawing:
    x = np.linspace(0, 10, 201)
    numbers: dict[str, Any] = {"negatives before": x}
    with house_style():
        figure = new_figure(COLUMN, 2.6)
        axes = figure.add_subplot()
        for before in range(4):
            slope = (1 + before) / (1 + before + x) ** 2  # Eq. 14
            axes.plot(x, slope, color=SERIES[0], alpha=1 - 0.2 * before, label=f"AP, {before} positives before")
            numbers[f"AP, {before} positives before"] = slope
        for number, variant in enumerate(("Ds", "Dq"), 1):
            slope, _ = _slope_and_value(variant, x)
            axes.plot(x, slope, label=f"PNP-{variant}, alpha = 2", **series(number))
            numbers[f"PNP-{variant}"] = slope
        axes.set(xlabel="negatives before the positive, R", ylabel="derivative", ylim=(0, 2.1))
        figure.legend(loc="outside upper center", ncols=2)
    caption = "The derivative of the loss with respect to the number of negatives before a positive: AP by Eq. 14."
    return Drawing("relation", "PNP and average precision", caption, numbers, figure)


def _ring(places: np.ndarray, labels: np.ndarray, seed: int) -> Points:
    """Return points (n, 2) scattered around eight places on a circle, and their labels (n,)."""
    angles = 2 * np.pi * places / 8
    noise = np.random.default_rng(seed).normal(0, 0.08, (len(places), 2))
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1) + noise
    return torch.as_tensor(points, dtype=torch.float32), torch.as_tensor(labels)


def _toy_data() -> tuple[Points, Points]:
    """Return training classes in two opposite places each, and test classes that part what training unites."""
    labels = np.repeat(np.arange(4), 150)
    second = np.tile(np.repeat([0, 4], 75), 4)
    return _ring(labels + second, labels, 0), _ring(np.asarray([0, 4, 2, 6])[labels], labels, 1)


def _toy_net(variant: str, points: torch.Tensor, labels: torch.Tensor, seed: int, steps: int = 100) -> nn.Module:
    """Train the paper's net: two layers of 30 neurons, from the plane to the unit circle."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2))
    loss = PNPLoss(variant=VARIANTS[variant](4.0, 2.0), temperature=0.05)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        batch = torch.randperm(len(points), generator=draw)[:64]
        optimizer.zero_grad()
        loss(net(points[batch]), labels[batch]).backward()
        optimizer.step()
    return net


@torch.no_grad()
def _on_circle(net: nn.Module, points: torch.Tensor) -> np.ndarray:
    return nn.functional.normalize(net(points)).numpy()


def _toy() -> Drawing:
    train, test = _toy_data()
    drawn = [("data: training", train[0].numpy(), train[1]), ("data: test", test[0].numpy(), test[1])]
    found = []
    state = torch.random.get_rng_state()
    for variant in ("Ib", "Dq"):
        nets = [_toy_net(variant, *train, seed) for seed in range(_TOY_SEEDS)]
        drawn += [
            (f"PNP-{variant}: {part}", _on_circle(nets[0], x), y)
            for part, (x, y) in zip(("training", "test"), (train, test), strict=True)
        ]
        recalls = [retrieval_metrics(_on_circle(net, test[0]), test[1].numpy())["recall@1"] for net in nets]
        found.append(f"PNP-{variant} {', '.join(f'{100 * recall:.0f}' for recall in recalls)}%")
    torch.random.set_rng_state(state)
    numbers: dict[str, Any] = {}
    with house_style():
        figure = new_figure(PAGE, 4.8)
        for axes, (title, points, labels) in zip(figure.subplots(2, 3).T.ravel(), drawn, strict=True):
            _draw_classes(axes, title, points, labels.numpy())
            numbers |= {f"{title}, x": points[:, 0], f"{title}, y": points[:, 1], f"{title}, class": labels.numpy()}
    caption = (
        "Left: four training classes of 150 points, each in two opposite places, and four test classes, two of which "
        "lie where training sees one class. Middle and right: the unit circle to which a net with two layers of 30 "
        f"neurons maps them (first seed). Recall@1 on the test classes with seeds 0 to {_TOY_SEEDS - 1}: "
        f"{'; '.join(found)}. The paper does not give its points; these are ours."
    )
    return Drawing("toy", "A toy in two dimensions", caption, numbers, figure)


def _draw_classes(axes: Any, title: str, points: np.ndarray, labels: np.ndarray) -> None:
    for label in range(4):
        axes.scatter(*points[labels == label].T, s=5, color=SERIES[label], marker=MARKERS[label], linewidths=0)
    axes.set_title(title)
    axes.set_aspect("equal")
    axes.set(xticks=[], yticks=[], xlim=(-1.4, 1.4), ylim=(-1.4, 1.4))
