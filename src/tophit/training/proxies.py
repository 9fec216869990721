"""The proxies of a run: saved with its best embedder and the names of their classes, and counted as centres.

Losses are imported where they are needed: a report asks only whether there are proxies.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tophit.errors import UsageError
from tophit.files import replace_file
from tophit.wording import counted

if TYPE_CHECKING:
    from torch import nn

_FILE = "proxies.safetensors"


@dataclass(frozen=True)
class Proxies:
    """Unit vectors (C, K, d) of the proxies of C classes, and the classes' names in that order."""

    classes: list[str]
    vectors: np.ndarray

    def centres(self) -> np.ndarray:
        """Return the centre of each proxy (C, K): the number of the first proxy of its class that it merged with."""
        import torch

        from tophit.losses.proxy_loss import MERGE_DISTANCE, merged_centres

        return merged_centres(torch.from_numpy(self.vectors), MERGE_DISTANCE).numpy()


def save_proxies(loss: "nn.Module", classes: list[str], folder: Path) -> None:
    """Write the proxies of a loss into an embedder's folder; write nothing for a loss without proxies."""
    from safetensors.torch import save_file
    from torch.nn import functional

    from tophit.losses import PrefixLoss
    from tophit.losses.loss_with_term import LossWithTerm
    from tophit.losses.proxy_loss import ProxyLoss

    while isinstance(loss, LossWithTerm):
        loss = loss.loss
    if isinstance(loss, PrefixLoss):
        loss = loss.whole
    if not isinstance(loss, ProxyLoss):
        return
    vectors = functional.normalize(loss.proxies.detach().float().cpu(), dim=-1)
    vectors = vectors.view(len(classes), -1, vectors.shape[-1])
    with replace_file(folder / _FILE) as temporary:
        save_file({"proxies": vectors.contiguous()}, temporary, {"classes": json.dumps(classes)})


def remove_proxies(folder: Path) -> None:
    """Remove the proxies from an embedder's folder, if there are any."""
    (folder / _FILE).unlink(missing_ok=True)


def has_proxies(run: str | Path) -> bool:
    """Return whether a run's best embedder has proxies."""
    return (Path(run) / "best" / _FILE).is_file()


def load_proxies(run: str | Path) -> Proxies:
    """Return the proxies of a run's best embedder; ``run`` is the run's folder or the embedder's."""
    from safetensors import safe_open

    for path in (Path(run) / "best" / _FILE, Path(run) / _FILE):
        if path.is_file():
            with safe_open(path, "np") as file:
                return Proxies(json.loads(file.metadata()["classes"]), file.get_tensor("proxies"))
    if not Path(run).is_dir():
        raise UsageError(f"There is no folder {run}; give the folder of a run or of its embedder.")
    raise UsageError(f"There are no proxies in {run}: its loss has none, or it has not evaluated an epoch yet.")


def count_centres(run: Path) -> dict[str, Any]:
    """Return how many distinct centres each class of a run kept, as its result's ``centres``; nothing if K = 1.

    Proxies closer than the merge distance, or joined by a chain of such proxies, are one centre.
    """
    if not has_proxies(run):
        return {}
    from tophit.losses.proxy_loss import MERGE_DISTANCE

    proxies = load_proxies(run)
    count = proxies.vectors.shape[1]
    if count == 1:
        return {}
    kept = (proxies.centres() == np.arange(count)).sum(axis=1).tolist()
    fields = {"proxies_per_class": count, "merge_distance": MERGE_DISTANCE}
    return {"centres": {**fields, "kept": dict(zip(proxies.classes, kept, strict=True))}}


def describe_centres(centres: dict[str, Any]) -> str:
    """Return ``centres`` of a result as a sentence."""
    counts = sorted(Counter(centres["kept"].values()).items())
    found = ", ".join(f"{number} in {counted(classes, 'class')}" for number, classes in counts)
    return (
        f"Distinct centres of the {centres['proxies_per_class']} proxies per class, merging those closer than "
        f"{centres['merge_distance']}: {found}; result.json has the number for each class."
    )
