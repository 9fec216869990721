"""Real ImageNet weights: whether they give the numbers they should.

    python -m benchmarks.real_weights googlenet=FILE resnet50-v1=FILE [--images FOLDER] [--save FOLDER]

For each file: the pooled features of an image by formula beside committed numbers, which an independent implementation
made in double precision (tests/reference/networks.py); and the class the network gives to a cat and a cup of coffee
(scikit-image's pictures). With ``--images``, a folder with one folder per ImageNet class in the order of the 1,000
classes, the top-1 and top-5 accuracy. With ``--save``, the embedder is saved for `tophit evaluate`.
docs/reference/backbones.md says where the files come from.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

from tophit.images.decode import array_to_image
from tophit.models import Embedder, build_embedder
from tophit.models.weights import State, read_weights

EXPECTED = Path(__file__).parent / "real_weights.json"
CATS, CUPS = {281, 282, 283, 285, 287}, {504, 967, 968}  # tabby to lynx; mug, espresso, cup


def formula_picture(size: int = 224) -> np.ndarray:
    """Return waves of several lengths in three colours, (size, size, 3), uint8."""
    y, x = np.mgrid[:size, :size].astype(np.float64)
    waves = [127.5 + 60 * np.sin(x / (7 + 5 * c)) + 60 * np.cos((x + 2 * y) / (11 + 3 * c)) for c in range(3)]
    return np.stack(waves, axis=2).round().clip(0, 255).astype(np.uint8)


@torch.inference_mode()
def features(embedder: Embedder, pictures: list[np.ndarray]) -> torch.Tensor:
    """Return pooled features (N, channels) by torch."""
    shown = np.stack([embedder.preprocessing(array_to_image(picture)) for picture in pictures])
    return embedder.features(torch.from_numpy(shown))


def classifier(state: State) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the weights (1000, channels) and biases of a file's classifier, if it has one."""
    for weight, bias in (("fc.weight", "fc.bias"), ("loss3/classifier.weight", "loss3/classifier.bias")):
        if weight in state:
            return state[weight].reshape(1000, -1), state[bias]
    return (state["fc1000/kernel"].T, state["fc1000/bias"]) if "fc1000/kernel" in state else None


def check(name: str, path: str, images: str | None, save: str | None) -> bool:
    embedder = build_embedder(name, path, squash=None).eval()
    found = features(embedder, [formula_picture()])[0]
    expected = json.loads(EXPECTED.read_text())[name]
    numbers = [*found[:: len(found) // 16].tolist(), float(found.mean())]
    worst = max(abs(a - b) for a, b in zip(numbers, expected["features"], strict=True)) / max(expected["features"])
    right = worst < expected["tolerance"]
    print(f"{name}: {path}")
    print(
        f"  features of the image by formula: {'as expected' if right else 'WRONG'}, off by {worst:.1e} of the largest"
    )
    head = classifier(read_weights(path))
    if head is not None:
        right &= _pictures_named(embedder, head)
        if images:
            _accuracy(embedder, head, Path(images))
    if save:
        embedder.save(Path(save) / name)
        print(f"  saved: {Path(save) / name}")
    return right


def _pictures_named(embedder: Embedder, head: tuple[torch.Tensor, torch.Tensor]) -> bool:
    from skimage import data

    scores = torch.nn.functional.linear(features(embedder, [data.chelsea(), data.coffee()]), *head)
    best = scores.argmax(dim=1).tolist()
    right = best[0] in CATS and best[1] in CUPS
    print(f"  a cat and a cup of coffee: classes {best[0]} and {best[1]}, {'right' if right else 'WRONG'}")
    return right


def _accuracy(embedder: Embedder, head: tuple[torch.Tensor, torch.Tensor], folder: Path) -> None:
    from PIL import Image

    hits = np.zeros(2)
    count = 0
    for number, own in enumerate(sorted(path for path in folder.iterdir() if path.is_dir())):
        pictures = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(own.iterdir())]
        best = torch.nn.functional.linear(features(embedder, pictures), *head).topk(5).indices
        hits += [float((best[:, 0] == number).sum()), float((best == number).any(dim=1).sum())]
        count += len(pictures)
    print(f"  {count} images: top-1 {hits[0] / count:.3f}, top-5 {hits[1] / count:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="BACKBONE=FILE")
    parser.add_argument("--images", help="a folder with a folder per ImageNet class, in the order of the classes")
    parser.add_argument("--save", help="a folder to save the embedders in")
    given = parser.parse_args()
    if not given.files:
        print("No files to check: name them as BACKBONE=FILE; docs/reference/backbones.md says where they come from.")
    known = [name for name in json.loads(EXPECTED.read_text()) if name != "what"]
    pairs = [file.partition("=") for file in given.files]
    if any(name not in known or not path for name, _, path in pairs):
        parser.error(f"write BACKBONE=FILE with one of {', '.join(known)}")
    results = [check(name, path, given.images, given.save) for name, _, path in pairs]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
