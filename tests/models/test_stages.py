"""The stages of backbones: one after the other they are the forward pass, and no weight is forgotten."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.models.test_libraries import tiny_folder
from torch import nn

from tophit.errors import UsageError
from tophit.models import Backbone, build_embedder
from tophit.models.backbones import Stage, build_backbone
from tophit.models.cut import check_stages, frozen_stages, stage_shapes, stage_tensors
from tophit.models.torchvision_models import TorchvisionBackbone

COUNTS = {  # stem, blocks and what else the papers' tables list
    "efficientnet-lite0": 1 + 16 + 1,
    "googlenet": 1 + 9,
    "bn-inception": 1 + 10,
    "resnet50": 1 + 3 + 4 + 6 + 3,
    "densenet201": 1 + 6 + 12 + 48 + 32 + 3,
    "small": 4,
}


def run_stages(backbone: Backbone, images: torch.Tensor) -> torch.Tensor:
    for stage in backbone.stages():
        images = stage.run(images)
    return images


def assert_stages_are_the_network(backbone: Backbone, size: int) -> None:
    """Their composition is the forward pass of every module, and every tensor belongs to one of them."""
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        backbone.eval()
        torch.testing.assert_close(run_stages(backbone, images), backbone(images), rtol=1e-5, atol=1e-5)
    names = [name for stage in stage_tensors(backbone) for name in stage]
    assert sorted(names) == sorted(backbone.state_dict())
    assert len({stage.name for stage in backbone.stages()}) == len(backbone.stages())


@pytest.mark.parametrize("name", COUNTS)
def test_the_stages_of_a_backbone_are_its_forward_pass(name: str) -> None:
    backbone = build_backbone(name, "random")
    assert len(backbone.stages()) == COUNTS[name]
    assert_stages_are_the_network(backbone, 64)


@pytest.mark.parametrize("name", COUNTS)
def test_a_stages_weights_are_those_that_its_function_uses(name: str) -> None:
    """Gradients through one stage reach its own parameters, all of them, and no others."""
    backbone = build_backbone(name, "random").eval()
    x = torch.rand(1, 3, 64, 64)
    for stage, tensors in zip(backbone.stages(), stage_tensors(backbone), strict=True):
        backbone.zero_grad(set_to_none=True)
        x = stage.run(x.detach())
        (x.square().sum() + x.sum()).backward()
        reached = {n for n, p in backbone.named_parameters() if p.grad is not None}
        assert reached == {n for n, tensor in tensors.items() if isinstance(tensor, nn.Parameter)}, stage.name
        x = x / x.abs().amax().clamp(min=1)  # random weights would grow without bound


@pytest.mark.parametrize(
    ("kind", "stages"), [("dinov2", 3), ("registers", 3), ("vit", 3), ("siglip", 3), ("resnet", 3)]
)
def test_the_blocks_of_a_model_of_transformers_are_its_stages(kind: str, stages: int, tmp_path: Path) -> None:
    backbone = build_embedder(tiny_folder(kind, tmp_path), squash=None).backbone
    assert len(backbone.stages()) == stages
    sizes = {"dinov2": (56, 70), "registers": (56,), "vit": (48, 64), "siglip": (32, 48), "resnet": (56,)}[kind]
    for size in sizes:  # others than the model's own interpolate its positions
        assert_stages_are_the_network(backbone, size)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(x)


class FakeTransformer(nn.Module):
    """A stand-in with the parts that timm's vision transformers have."""

    num_features, num_prefix_tokens = 6, 1

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, 6))
        self.patch_embed = nn.Conv2d(3, 6, 8, 8)
        self.norm_pre = nn.Identity()
        self.blocks = nn.Sequential(Block(6), Block(6), Block(6))
        self.norm = nn.LayerNorm(6)

    def _pos_embed(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.cls_token.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], dim=1)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(self.norm_pre(self._pos_embed(self.patch_embed(x)))))


class FakeConvolutions(nn.Module):
    """A stand-in for timm's convolutional networks: children in order, then pooling and a classifier."""

    num_features = 5

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.act1 = nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU()
        self.layer1 = nn.Sequential(nn.Conv2d(4, 5, 3), nn.Conv2d(5, 5, 1))
        self.global_pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(5, 3)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer1(self.act1(self.bn1(self.conv1(x))))


class FakeTwisted(FakeConvolutions):
    """A network whose children do not follow one another."""

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer1(self.act1(self.bn1(self.conv1(x)))) * 2


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"transformer": FakeTransformer, "convolutions": FakeConvolutions, "twisted": FakeTwisted}
    data = {"input_size": (3, 32, 32), "crop_pct": 0.9, "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    module = SimpleNamespace(
        is_model=kinds.__contains__,
        create_model=lambda name, pretrained, num_classes: kinds[name](),
        data=SimpleNamespace(resolve_model_data_config=lambda model: data),
    )
    monkeypatch.setitem(sys.modules, "timm", module)  # type: ignore[arg-type]


def test_stages_of_timm_are_blocks_or_children(timm: None) -> None:
    transformer = build_embedder("timm/transformer", "random").backbone
    assert [stage.name for stage in transformer.stages()] == ["embeddings", "blocks.0", "blocks.1", "blocks.2"]
    assert_stages_are_the_network(transformer, 32)
    first, *_, last = stage_tensors(transformer)
    assert "model.cls_token" in first
    assert "model.norm.weight" in last
    convolutions = build_embedder("timm/convolutions", "random").backbone
    assert [stage.name for stage in convolutions.stages()] == ["conv1", "layer1.0", "layer1.1"]
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(run_stages(convolutions.eval(), images), convolutions(images))


def test_a_network_that_is_not_its_children_in_order_is_refused(timm: None) -> None:
    check_stages(build_embedder("timm/convolutions", "random"))
    with pytest.raises(UsageError, match=r"last stages of 'timm/twisted' can't be trained alone"):
        check_stages(build_embedder("timm/twisted", "random"))


def test_stages_of_torchvision_are_children_and_their_blocks() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(
                nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU()), nn.Conv2d(4, 4, 3), nn.MaxPool2d(2)
            )
            self.avgpool = nn.AdaptiveAvgPool2d(1)

    backbone = TorchvisionBackbone(Net())
    assert [stage.name for stage in backbone.stages()] == ["features.0.0", "features.1"]
    assert_stages_are_the_network(backbone, 32)


class OnlyForward(Backbone):
    channels = 4

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 4, 8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.patches(x)


def test_a_backbone_with_only_a_forward_pass_is_one_stage() -> None:
    backbone = OnlyForward()
    assert_stages_are_the_network(backbone, 16)
    assert [stage.name for stage in backbone.stages()] == ["network"]
    with pytest.raises(NotImplementedError, match="neither stages nor forward"):
        Backbone().stages()


class Shared(Backbone):
    """The same module twice."""

    channels = 3

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(3, 3, 1)

    def stages(self) -> list[Stage]:
        return [Stage("once", self.mix, (self.mix,)), Stage("again", self.mix, (self.mix,))]


def test_shared_weights_belong_to_the_first_stage_that_uses_them() -> None:
    assert [sorted(stage) for stage in stage_tensors(Shared())] == [["mix.bias", "mix.weight"], []]


def test_the_last_stages_are_counted_from_the_end() -> None:
    resnet = build_backbone("resnet50", "random")
    assert [frozen_stages(resnet, last) for last in (1, 3, 17, 99)] == [16, 14, 0, 0]
    assert frozen_stages(resnet, None) == 15  # the last two blocks have 38% of the weights
    embedder = build_embedder("resnet50", "random", size=64)
    assert stage_shapes(embedder)[13] == (1024, 4, 4)
    assert stage_shapes(embedder)[-1] == (2048, 2, 2)
