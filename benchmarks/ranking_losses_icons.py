"""Train a head on the icon set with each ranking loss, over several seeds, and print recall@1 and MAP@R.

    python -m benchmarks.ranking_losses_icons            every loss
    python -m benchmarks.ranking_losses_icons --merge 3  the PNP paper's robustness experiment

Every run has the same recipe except for the loss: 20 epochs on cached features of the frozen backbone, batches of 32
classes x 4 images, the epoch chosen on validation classes, measured on test classes that training never saw.
The intervals are 95% for the mean over seeds (Student's t).
"""

import argparse
from typing import Any

from benchmarks.seeds import STUDENT_95, metrics_over_seeds, print_head, print_row

LOSSES: dict[str, dict[str, Any]] = {
    "PNP-O": {"name": "pnp", "variant": "O"},
    "PNP-Iu": {"name": "pnp", "variant": "Iu"},
    "PNP-Ib": {"name": "pnp", "variant": "Ib"},
    "PNP-Ds": {"name": "pnp", "variant": "Ds"},
    "PNP-Dq": {"name": "pnp", "variant": "Dq"},
    "Smooth-AP": {"name": "smooth-ap"},
    "top-k precision": {"name": "topk-precision"},
    "Proxy-Anchor": {"name": "proxy-anchor"},
}
# All variants; the paper's own tables have Smooth-AP, one of the I variants, and Dq.
MERGED = ["PNP-Dq", "PNP-O", "PNP-Iu", "PNP-Ib", "Smooth-AP"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--merge", type=int, default=1, help="training classes merged into one")
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(STUDENT_95), help="runs of each loss")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    sections = {"data": {"merge_classes": arguments.merge}, "schedule": {"epochs": arguments.epochs}}
    print_head("loss")
    untrained = {"optimizer": {"head": {"lr": 0.0, "weight_decay": 0.0}}, "schedule": {"epochs": 1}}
    print_row("untrained head", metrics_over_seeds("icons", arguments.seeds, {**sections, **untrained}))
    for name in LOSSES if arguments.merge == 1 else MERGED:
        print_row(name, metrics_over_seeds("icons", arguments.seeds, {**sections, "loss": LOSSES[name]}))


if __name__ == "__main__":
    main()
