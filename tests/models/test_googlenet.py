"""GoogLeNet without BatchNorm, files of Caffe and TensorFlow.js, and what was saved when googlenet had BatchNorm."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models.test_backbones import fill_by_formula
from tests.reference import networks
from torch import nn

import tophit
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.models.backbones import build_backbone
from tophit.models.embedder import digest
from tophit.models.googlenet import ChannelNorm
from tophit.models.weights import State
from tophit.recipe import read_recipe
from tophit.training import Run

GOLDEN = Path(__file__).parents[1] / "golden"


def image_by_formula(size: int = 96) -> torch.Tensor:
    return torch.sin(torch.arange(3 * size * size, dtype=torch.float64) * 0.37).reshape(1, 3, size, size).float()


@pytest.fixture(scope="module")
def weights() -> State:
    state = {name: value.clone() for name, value in build_backbone("googlenet", "random").state_dict().items()}
    fill_by_formula(state)
    return {name: value * (1.5 if value.ndim == 4 else 1) for name, value in state.items()}


def test_googlenet_is_the_layer_list_of_its_publisher(weights: State, tmp_path: Path) -> None:
    save_file(
        weights | {"fc.weight": torch.zeros(1000, 1024), "fc.bias": torch.zeros(1000)}, tmp_path / "w.safetensors"
    )
    network = build_backbone("googlenet", str(tmp_path / "w.safetensors")).eval()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    image = 20 * image_by_formula()  # large enough for the normalisation over channels to matter
    with torch.inference_mode():
        found = network(image)
    expected = networks.googlenet(image, weights)
    assert found.shape == expected.shape == (1, 1024, 3, 3)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3 * float(expected.max()))


def test_channels_are_normalised_as_by_torch_and_gradients_too() -> None:
    torch.manual_seed(0)
    x = (100 * torch.randn(2, 12, 3, 4, dtype=torch.float64)).requires_grad_()
    norm = ChannelNorm(12).double()
    expected = nn.functional.local_response_norm(x, 5, 1e-4, 0.75, 1.0)
    torch.testing.assert_close(norm(x), expected, rtol=1e-6, atol=1e-6)  # the band is stored in single precision
    torch.testing.assert_close(norm(x).detach(), networks.normalise_channels(x.detach()), rtol=1e-6, atol=1e-6)
    weight = torch.randn_like(x)
    ours, theirs = (torch.autograd.grad((y * weight).sum(), x)[0] for y in (norm(x), expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert torch.autograd.gradcheck(norm, (x,))


def test_the_first_layers_of_the_published_weights_give_the_published_layer_lists_activations() -> None:
    """The file holds conv1 and conv2r of Caffe's bvlc_googlenet; the numbers were made in double precision."""
    real = load_file(GOLDEN / "googlenet_stem.safetensors")
    golden = json.loads((GOLDEN / "googlenet_stem.json").read_text())
    network = build_backbone("googlenet", "random").eval()
    network.load_state_dict(network.state_dict() | real)
    image = image_by_formula(64)
    found: list[torch.Tensor] = []
    network.get_submodule("conv2r").register_forward_hook(lambda *given: found.append(given[2].clamp(min=0)))
    with torch.inference_mode():
        network(image)
    for place, value in zip(golden["places"], golden["values"], strict=True):
        assert float(found[0][0][tuple(place)]) == pytest.approx(value, rel=1e-4, abs=1e-4)
    assert float(found[0].mean()) == pytest.approx(golden["mean"], rel=1e-4)
    torch.testing.assert_close(found[0].double(), networks.googlenet_stem(image, real), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["profs/cub200", "thsg/cub200"])
def test_the_papers_that_used_inception_without_batch_norm_have_it(name: str) -> None:
    section = read_recipe(name, data="photos").embedder
    network = build_backbone(section.backbone, "random")
    assert not [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def test_onnx_gives_the_same_vectors(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    from tophit.models.onnx_export import export_onnx

    torch.manual_seed(0)
    embedder = build_embedder("googlenet", "random", dim=4, size=64).eval()
    export_onnx(embedder, tmp_path / "net.onnx", "vectors")
    images = 10 * torch.randn(3, 3, 64, 64)
    (found,) = runtime.InferenceSession(tmp_path / "net.onnx").run(None, {"images": images.numpy()})
    with torch.inference_mode():
        np.testing.assert_allclose(found, embedder(images), atol=1e-4)


# --- files of other libraries


def caffe_file(layers: dict[str, list[np.ndarray]], modern: bool) -> bytes:
    """Write a net with google.protobuf, from the few fields of caffe.proto that matter here."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"caffe{modern}.proto", package=f"caffe{modern}", syntax="proto2")

    def message(name: str, *fields: tuple[str, int, int, str, bool]) -> None:
        made = file.message_type.add(name=name)
        for field, number, kind, of, packed in fields:
            repeated = kinds.LABEL_REPEATED if of or packed else kinds.LABEL_OPTIONAL
            added = made.field.add(name=field, number=number, type=kind, label=repeated)
            if of:
                added.type_name = f".{file.package}.{of}"
            added.options.packed = packed

    message("Shape", ("dim", 1, kinds.TYPE_INT64, "", True))
    sides = [(side, number, kinds.TYPE_INT32, "", False) for number, side in enumerate("nchw", 1)]
    message("Blob", *sides, ("data", 5, kinds.TYPE_FLOAT, "", True), ("shape", 7, kinds.TYPE_MESSAGE, "Shape", False))
    numbers = (1, 7, 100) if modern else (4, 6, 2)
    message("Layer", ("name", numbers[0], kinds.TYPE_STRING, "", False), ("blobs", numbers[1], 11, "Blob", False))
    message("Net", ("name", 1, kinds.TYPE_STRING, "", False), ("layers", numbers[2], 11, "Layer", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    net = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Net"))(name="a net")
    for name, blobs in layers.items():
        layer = net.layers.add(name=name)
        for blob in blobs:
            made = layer.blobs.add(data=blob.ravel().tolist())
            if modern:
                made.shape.add(dim=blob.shape)
            else:
                made.n, made.c, made.h, made.w = (1,) * (4 - blob.ndim) + blob.shape
    return net.SerializeToString()


def caffe_names(weights: State) -> dict[str, list[np.ndarray]]:
    own = {"c1": "1x1", "c3r": "3x3_reduce", "c3": "3x3", "c5r": "5x5_reduce", "c5": "5x5", "pp": "pool_proj"}
    stem = {"conv1": "conv1/7x7_s2", "conv2r": "conv2/3x3_reduce", "conv2": "conv2/3x3"}
    layers: dict[str, list[np.ndarray]] = {"data": [], "loss1/fc": [np.ones((3, 4), np.float32)]}
    for layer in dict.fromkeys(name.rsplit(".", 1)[0] for name in weights):
        block, _, within = layer.partition(".")
        name = stem.get(layer) or f"inception_{block[1:]}/{own[within]}"
        layers[name] = [weights[f"{layer}.weight"].numpy(), weights[f"{layer}.bias"].numpy()]
    return layers


@pytest.mark.parametrize("modern", [False, True])
def test_a_file_of_caffe_loads_and_takes_rgb_with_imagenets_mean(weights: State, modern: bool, tmp_path: Path) -> None:
    (tmp_path / "net.caffemodel").write_bytes(caffe_file(caffe_names(weights), modern))
    network = build_backbone("googlenet", str(tmp_path / "net.caffemodel")).eval()
    pixels = np.random.default_rng(0).uniform(0, 255, (3, 64, 64))
    shown = (pixels / 255 - np.reshape([0.485, 0.456, 0.406], (3, 1, 1))) / np.reshape([0.229, 0.224, 0.225], (3, 1, 1))
    bgr = torch.from_numpy(pixels[::-1] - np.reshape([104, 117, 123], (3, 1, 1)))[None]
    with torch.inference_mode():
        found = network.get_submodule("conv1")(torch.from_numpy(shown).float()[None])
    expected = networks.conv(bgr, weights, "conv1", 2, 3)
    inside = (slice(None), slice(None), slice(2, -2), slice(2, -2))  # at the border, Caffe pads with its own mean
    torch.testing.assert_close(found.double()[inside], expected[inside], rtol=1e-4, atol=1e-2)
    assert torch.equal(network.state_dict()["i4c.c5.weight"], weights["i4c.c5.weight"])


def keras_arrays() -> dict[str, np.ndarray]:
    """Random arrays with the names and shapes of Keras's ResNet-50."""
    random = np.random.default_rng(0)
    shapes = {"conv1": (7, 7, 3, 64)}
    inputs = 64
    for stage, blocks, width in ((2, "abc", 64), (3, "abcd", 128), (4, "abcdef", 256), (5, "abc", 512)):
        for block in blocks:
            name = f"res{stage}{block}_branch"
            shapes |= {f"{name}2a": (1, 1, inputs, width), f"{name}2b": (3, 3, width, width)}
            shapes |= {f"{name}2c": (1, 1, width, 4 * width)}
            if block == "a":
                shapes[f"{name}1"] = (1, 1, inputs, 4 * width)
            inputs = 4 * width
    arrays = {"fc1000/kernel": np.zeros((2048, 10), np.float32)}
    for name, shape in shapes.items():
        norm = "bn_conv1" if name == "conv1" else name.replace("res", "bn")
        arrays[f"{name}/kernel"] = random.normal(0, np.sqrt(1 / np.prod(shape[:3])), shape)
        arrays[f"{name}/bias"] = random.normal(0, 0.1, shape[3])
        arrays |= {f"{norm}/{part}": random.uniform(0.5, 1, shape[3]) for part in ("gamma", "moving_variance")}
        arrays |= {f"{norm}/{part}": random.normal(0, 0.1, shape[3]) for part in ("beta", "moving_mean")}
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def tensorflow_js(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Write a model.json and its data in two parts, cut inside of an array."""
    data = b"".join(value.tobytes() for value in arrays.values())
    (folder / "part1.bin").write_bytes(data[: len(data) // 2 + 1])
    (folder / "part2.bin").write_bytes(data[len(data) // 2 + 1 :])
    weights = [{"name": name, "shape": value.shape, "dtype": "float32"} for name, value in arrays.items()]
    manifest = [{"paths": ["part1.bin", "part2.bin"], "weights": weights}]
    (folder / "model.json").write_text(json.dumps({"modelTopology": {}, "weightsManifest": manifest}))
    return folder / "model.json"


def test_keras_resnet50_loads_and_gives_keras_features(tmp_path: Path) -> None:
    arrays = keras_arrays()
    embedder = build_embedder("resnet50-v1", str(tensorflow_js(tmp_path, arrays)), size=64, crop=1.0).eval()
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    shown = torch.from_numpy(embedder.preprocessing(_picture(pixels))[None])
    with torch.inference_mode():
        found = embedder.backbone(shown)[0].double()
    expected = networks.keras_resnet50(pixels.astype(float), arrays)[0]
    # Keras pads pixels with its own mean, half a step of 255 away from ours
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.01 * float(expected.max()))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.caffemodel", b"", "it holds no layers with weights"),
        ("a.caffemodel", b"\x12\xff\x01abc", "it is cut off"),
        ("a.caffemodel", b"\x0b\x00", "not a protocol buffer"),
        ("model.json", b"[1, 2]", "names no weights"),
        ("model.json", b"{", "Expecting property name"),
        ("model.json", b'{"weightsManifest": [{"paths": ["b.bin"], "weights": []}]}', r"its part b\.bin is missing"),
    ],
)
def test_a_broken_file_is_named_with_the_reason(name: str, content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TophitError, match=rf"{re.escape(name)}' does not hold plain tensors .*: .*{reason}"):
        build_backbone("googlenet", str(tmp_path / name))


def test_weights_of_the_other_googlenet_are_refused_with_its_name(weights: State, tmp_path: Path) -> None:
    save_file(weights, tmp_path / "plain.safetensors")
    with pytest.raises(TophitError, match=r"do not fit 'googlenet-bn': .* missing: .*They fit googlenet: set"):
        build_backbone("googlenet-bn", str(tmp_path / "plain.safetensors"))
    save_file(build_backbone("googlenet-bn", "random").state_dict(), tmp_path / "bn.safetensors")
    with pytest.raises(TophitError, match=r"do not fit 'googlenet': .*They fit googlenet-bn: set embedder\.backbone"):
        build_backbone("googlenet", str(tmp_path / "bn.safetensors"))
    save_file(weights | {"i3a.c1.weight": torch.zeros(64, 191, 1, 1)}, tmp_path / "wrong.safetensors")
    with pytest.raises(TophitError, match=r"1 of another shape: i3a\.c1\.weight \(64x191x1x1, not 64x192x1x1\)\.$"):
        build_backbone("googlenet", str(tmp_path / "wrong.safetensors"))


def test_the_original_resnet_has_no_weights_of_its_own() -> None:
    with pytest.raises(UsageError, match="'resnet50-v1' has no pretrained weights; use weights: random, or a file"):
        build_backbone("resnet50-v1")


# --- what was saved when googlenet was the network with BatchNorm

# The vector that the code of 3e8f59c gave for `build_embedder("googlenet", "random", dim=8, size=64)`, weights by
# formula, of the picture below.
OLD_VECTOR = [-0.41431, 0.289832, -0.111311, -0.048838, 0.21849, -0.376371, 0.475012, -0.560839]


@pytest.fixture
def old_embedder(tmp_path: Path) -> Path:
    embedder = build_embedder("googlenet-bn", "random", dim=8, size=64)
    fill_by_formula(embedder.state_dict())
    embedder.save(tmp_path / "run" / "best")
    description = tmp_path / "run" / "best" / "embedder.json"
    description.write_text(description.read_text().replace('"googlenet-bn"', '"googlenet"'))
    return tmp_path / "run" / "best"


def test_an_embedder_saved_as_googlenet_with_batch_norm_still_opens(old_embedder: Path, tmp_path: Path) -> None:
    picture = (np.arange(64 * 64 * 3).reshape(64, 64, 3) * 7 % 256).astype(np.uint8)
    for folder in (old_embedder, tmp_path / "again"):
        embedder = tophit.load(folder)
        np.testing.assert_allclose(embedder.encode([picture])[0], OLD_VECTOR, atol=1e-4)
        # the fingerprint by which indexes know it counts the name, so the name stays
        old = json.loads((old_embedder / "embedder.json").read_text())
        assert embedder.architecture == old["architecture"]
        expected = digest(load_file(old_embedder / "weights.safetensors"), [old["architecture"], old["preprocessing"]])
        assert embedder.fingerprint() == expected
        embedder.save(tmp_path / "again")


def test_a_new_embedder_of_the_same_name_opens_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    embedder = build_embedder("googlenet", "random", dim=8, size=64).eval()
    embedder.save(tmp_path)
    image = image_by_formula(64)
    with torch.inference_mode():
        torch.testing.assert_close(tophit.load(tmp_path)(image), embedder(image))


def test_the_recipe_of_an_old_run_names_its_backbone_as_it_is_called_today(old_embedder: Path) -> None:
    run = Run(old_embedder.parent)
    run.begin(read_recipe("head", ["embedder.backbone=googlenet"], data="photos"))
    assert run.recipe().embedder.backbone == "googlenet-bn"
    build_embedder("googlenet", "random", dim=8).save(run.best)
    assert run.recipe().embedder.backbone == "googlenet"


def _picture(array: np.ndarray):
    from tophit.images.decode import array_to_image

    return array_to_image(array)
