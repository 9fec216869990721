"""Two gloo processes: the gathered loss equals the loss of the joined batch, in value and in gradient."""

import sys
from pathlib import Path

import torch
from tests.reference.two_processes import results_of_two_processes
from torch import nn

from tophit.losses import (
    BlackboxAPLoss,
    FastAPLoss,
    HistogramLoss,
    MultiProxyAnchorLoss,
    MultiSimilarityLoss,
    PNPLoss,
    SmoothAPLoss,
    SoftTripleLoss,
    TopKPrecisionLoss,
)
from tophit.losses.distributed import GatheredLoss

torch.manual_seed(2)
LOSSES = {
    "pnp": PNPLoss(temperature=0.1),
    "smooth-ap": SmoothAPLoss(temperature=0.1),
    "topk": TopKPrecisionLoss(k=2),
    "fastap": FastAPLoss(),
    "histogram": HistogramLoss(bins=20),
    "multi-similarity": MultiSimilarityLoss(),
    "blackbox-ap": BlackboxAPLoss(),
    "mpa": MultiProxyAnchorLoss(5, 4, 2).double(),
    "mpa-dw": MultiProxyAnchorLoss(5, 4, 2, "data").double(),
    "mpa-ap": MultiProxyAnchorLoss(5, 4, 2, "all-pairs").double(),
    "soft-triple": SoftTripleLoss(5, 4, 3).double(),
}
PROXIES = ("mpa", "mpa-dw", "mpa-ap", "soft-triple")
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 2, 3, 0, 1, 4])
FIRST = 5  # rows of the first process; the second has one more


def inputs():
    return torch.randn(len(LABELS), 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network():
    torch.manual_seed(1)
    return nn.Linear(6, 4).double()


def joined():
    """Return value, gradient by embeddings, by weights and by proxies of each loss in one process."""
    results = {}
    for name, loss in LOSSES.items():
        net = network()
        embeddings = net(inputs())
        embeddings.retain_grad()
        value = loss(embeddings, LABELS)
        value.backward()
        results[name] = (value.detach(), embeddings.grad, net.weight.grad, proxies_gradient(loss))
    return results


def proxies_gradient(loss):
    return loss.proxies.grad if hasattr(loss, "proxies") else None


def worker(folder: str, rank: int) -> None:
    """Run one process; saves its results."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    rows = slice(0, FIRST) if rank == 0 else slice(FIRST, None)
    results = {}
    for name, loss in LOSSES.items():
        net = DistributedDataParallel(network())
        embeddings = net(inputs()[rows])
        embeddings.retain_grad()
        gathered = GatheredLoss(loss)
        if name in PROXIES:  # the first process's proxies are everybody's; their gradients are reduced with the others
            with torch.no_grad():
                loss.proxies.add_(rank)
            gathered = DistributedDataParallel(gathered)
        value = gathered(embeddings, LABELS[rows])
        value.backward()
        results[name] = (value.detach(), embeddings.grad, net.module.weight.grad, proxies_gradient(loss))
    torch.save(results, Path(folder) / f"{rank}.pt")
    dist.barrier()  # nobody leaves while the other still talks
    dist.destroy_process_group()


def test_two_processes_equal_one(tmp_path):
    ranks = results_of_two_processes(__file__, tmp_path)
    for name, (value, by_embeddings, by_weights, by_proxies) in joined().items():
        assert by_embeddings.abs().max() > 0
        parts = [rank[name] for rank in ranks]
        for part in parts:
            torch.testing.assert_close(part[0], value)
            torch.testing.assert_close(part[2], by_weights)  # after DistributedDataParallel's mean
            assert (by_proxies is not None) == (name in PROXIES)
            torch.testing.assert_close(part[3], by_proxies)  # once, not once a process
        torch.testing.assert_close(torch.cat([part[1] for part in parts]), 2 * by_embeddings)


def test_one_process_needs_no_group():
    x = inputs().requires_grad_()
    torch.testing.assert_close(GatheredLoss(LOSSES["pnp"])(x, LABELS), LOSSES["pnp"](x, LABELS))


if __name__ == "__main__":
    worker(sys.argv[1], int(sys.argv[2]))
