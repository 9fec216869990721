"""Stochastic depth: which branches are left out, how often, and that evaluation knows nothing of it."""

import pytest
import torch

from tophit.models import build_embedder
from tophit.models.efficientnet_lite import InvertedResidual
from tophit.models.resnet import Bottleneck
from tophit.models.stochastic_depth import StochasticDepth, set_stochastic_depth


@pytest.mark.parametrize(("name", "blocks"), [("efficientnet-lite0", 9), ("resnet50", 16)])
def test_the_rate_grows_linearly_over_the_residual_blocks(name: str, blocks: int) -> None:
    backbone = build_embedder(name, "random", size=32).backbone
    assert set_stochastic_depth(backbone, 0.4) == blocks
    rates = [module.rate for module in backbone.modules() if isinstance(module, StochasticDepth)]
    assert rates == pytest.approx([0.4 * i / blocks for i in range(1, blocks + 1)])
    assert not any(".depth." in key for key in backbone.state_dict())


def test_a_network_without_residual_blocks_has_none() -> None:
    assert set_stochastic_depth(build_embedder("small", "random").backbone, 0.4) == 0


def test_a_share_of_the_images_loses_its_branch_and_the_mean_stays() -> None:
    torch.manual_seed(0)
    depth = StochasticDepth()
    depth.rate = 0.25
    branch = torch.ones(4000, 2, 1, 1)
    found = depth.train()(branch)
    kept = found[:, 0, 0, 0] != 0
    assert torch.equal(found[:, 0], found[:, 1])  # an image is kept or lost as a whole
    torch.testing.assert_close(found[kept], torch.full_like(found[kept], 4 / 3))
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.03)
    assert torch.equal(depth.eval()(branch), branch)


@pytest.mark.parametrize("block", [InvertedResidual(8, 8, 6, 3, 1), Bottleneck(32, 8, 1)])
def test_without_its_branch_a_block_is_the_identity(block: torch.nn.Module) -> None:
    width = 8 if isinstance(block, InvertedResidual) else 32
    x = torch.rand(64, width, 4, 4)  # positive, so that the ReLU after the sum changes nothing
    set_stochastic_depth(block, 0.5)
    torch.manual_seed(0)
    y = block.train()(x)
    same = (y == x).flatten(1).all(dim=1)
    assert 16 < same.sum().item() < 48
