"""Train heads with the proxy losses over several seeds and print recall@1, MAP@R and nDCG@8 on unseen classes.

    python -m benchmarks.proxy_losses_heads losses            every proxy loss
    python -m benchmarks.proxy_losses_heads proxies           the paper's ablation: K = 1, 4, 8, 12, 16
    python -m benchmarks.proxy_losses_heads merged            one proxy against several, with three classes merged

``--data`` takes a manifest, a folder of class folders, or the demo set 'icons'. Every run has the same recipe except
for the loss: cached features of the frozen backbone, batches of 32 classes x 4 images, the epoch chosen on validation
classes, measured on test classes that training never saw. The intervals are 95% for the mean over seeds (Student's t);
a difference is taken seed by seed.
"""

import argparse
from typing import Any

from benchmarks.seeds import STUDENT_95, Sections, metrics_over_seeds, print_difference, print_head, print_row

METRICS = ("recall@1", "MAP@R", "ndcg@8")
LOSSES: dict[str, dict[str, Any]] = {
    "Proxy-Anchor": {"name": "proxy-anchor"},
    "MPA": {"name": "multi-proxy-anchor", "variant": "class"},
    "MPA-DW": {"name": "multi-proxy-anchor", "variant": "data"},
    "MPA-AP": {"name": "multi-proxy-anchor", "variant": "all-pairs"},
    "SoftTriple": {"name": "soft-triple"},
    "ProxyNCA": {"name": "proxy-nca"},
    "ProxyNCA++": {"name": "proxy-nca++"},
}
FAMILY = ("MPA", "MPA-DW", "MPA-AP", "SoftTriple")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["losses", "proxies", "merged"], nargs="?", default="losses")
    parser.add_argument("--data", default="icons")
    parser.add_argument("--loss", choices=FAMILY, action="append", help="for proxies and merged (repeatable)")
    parser.add_argument("--k", type=int, nargs="+", help="proxies per class, for proxies and merged")
    parser.add_argument("--merge", type=int, default=3, help="for merged: training classes merged into one")
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(STUDENT_95), help="runs of each row")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--size", type=int, default=64, help="side of the input in pixels")
    arguments = parser.parse_args()
    sections: Sections = {
        "data": {"merge_classes": arguments.merge if arguments.table == "merged" else 1},
        "schedule": {"epochs": arguments.epochs},
        "embedder": {"size": arguments.size},
    }
    print_head("loss", METRICS)
    if arguments.table == "losses":
        for name, loss in LOSSES.items():
            print_row(name, measured(arguments, {**sections, "loss": loss}), METRICS)
        return
    counts = arguments.k or ([1, 4, 8, 12, 16] if arguments.table == "proxies" else [1, 8])
    for name in arguments.loss or (["MPA"] if arguments.table == "proxies" else ["MPA", "MPA-DW"]):
        print_counts(name, counts, arguments, sections)


def measured(arguments: argparse.Namespace, sections: Sections) -> list[dict[str, float]]:
    return metrics_over_seeds(arguments.data, arguments.seeds, sections, arguments.first_seed)


def print_counts(name: str, counts: list[int], arguments: argparse.Namespace, sections: Sections) -> None:
    """Print a row for each number of proxies, followed by its difference from the first."""
    first = None
    for count in counts:
        loss = {**LOSSES[name], "proxies_per_class": count}
        results = measured(arguments, {**sections, "loss": loss})
        print_row(f"{name}, K = {count}", results, METRICS)
        if first is not None:
            print_difference(f"difference from K = {counts[0]}", first, results, METRICS)
        first = first or results


if __name__ == "__main__":
    main()
