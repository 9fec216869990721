"""Reading images: photos per second on one core, compared with plain Pillow; how long training waits for them; and
what share of the network's own speed is left when images are read meanwhile, as ``encode``, ``embed`` and ``index`` do;
and what their shared cache saves.

The photos are synthetic: 500x375 pixels of texture at many scales, JPEGs of about 60 kB. Times are of one thread.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks import side_by_side
from tophit.data.dataset import ImageDataset, ImageLoader
from tophit.data.manifest import ImageRow
from tophit.embedding.folder import embed_to_folder
from tophit.images.decoded import DecodedCache
from tophit.images.preprocessing import Preprocessing
from tophit.images.views import Augmentation
from tophit.losses import ProxyAnchorLoss
from tophit.models import build_embedder
from tophit.models.runtimes import Runtime, build_runtime, runtimes_at_hand

VIEW = Preprocessing(size=224, crop=0.875, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
MEAN, STD = np.asarray(VIEW.mean, np.float32), np.asarray(VIEW.std, np.float32)
BATCH = 32


def photo(seed: int, width: int = 500, height: int = 375) -> Image.Image:
    """Draw texture at many scales, with contrast falling towards fine detail as in photos."""
    random = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3), np.float32)
    for side in (1, 2, 4, 8, 16, 32, 64, 128):
        grid = random.normal(size=(height // side + 2, width // side + 2, 3)).astype(np.float32) * side**0.55
        layers = [Image.fromarray(grid[:, :, c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(3)]
        pixels += np.stack([np.asarray(layer) for layer in layers], axis=2)
    pixels = (pixels - pixels.mean()) / pixels.std() * 55 + 120
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def write_photos(folder: Path, count: int) -> list[ImageRow]:
    rows = []
    for number in range(count):
        path = folder / f"{number}.jpg"
        photo(number).save(path, quality=88)
        rows.append(ImageRow(path, str(number % 8), "train"))
    return rows


def plain_test(path: Path) -> np.ndarray:
    """Decode, scale the short side to 256, cut the centre, normalise: one image at a time."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    return _plain_numbers(image.crop((left, top, left + 224, top + 224)))


def plain_train(path: Path, random: np.random.Generator) -> np.ndarray:
    """Decode, scale the short side to 256, cut 224 anywhere, mirror half, normalise: one image at a time."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = int(random.integers(image.width - 223)), int(random.integers(image.height - 223))
    image = image.crop((left, top, left + 224, top + 224))
    return _plain_numbers(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.uniform() < 0.5 else image)


def plain_random_resized(path: Path, random: np.random.Generator) -> np.ndarray:
    """Decode, cut a random share of the picture and scale it to 224, mirror half, normalise."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    wide, high = (round(side * np.sqrt(random.uniform(0.08, 1.0))) for side in image.size)
    left, top = int(random.integers(image.width - wide + 1)), int(random.integers(image.height - high + 1))
    image = image.crop((left, top, left + wide, top + high)).resize((224, 224), Image.Resampling.BICUBIC)
    return _plain_numbers(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.uniform() < 0.5 else image)


def _plain_numbers(image: Image.Image) -> np.ndarray:
    values = (np.asarray(image, np.float32) / 255 - MEAN) / STD
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def speed(rows: list[ImageRow], console: Console, rounds: int) -> None:
    batches = [list(range(i, min(i + BATCH, len(rows)))) for i in range(0, len(rows), BATCH)]
    random = np.random.default_rng(0)
    plain = {
        "test: short side 256, centre 224": lambda path: plain_test(path),
        "train: short side 256, random 224, mirrored": lambda path: plain_train(path, random),
        "train: random resized crop, mirrored": lambda path: plain_random_resized(path, random),
    }
    views = {
        "test: short side 256, centre 224": None,
        "train: short side 256, random 224, mirrored": Augmentation(0, flip=True, crop="random"),
        "train: random resized crop, mirrored": Augmentation(0, (0.08, 1.0), True, "random-resized"),
    }
    table = Table("views", "plain Pillow, images/s", "Tophit, images/s", "times faster", "cached, images/s")
    for name, augmentation in views.items():
        cache = DecodedCache(len(rows), 2 * 10**9)
        fresh = ImageLoader(ImageDataset(rows, VIEW, augmentation))
        kept = ImageLoader(ImageDataset(rows, VIEW, augmentation, cache))

        def read_plainly(each=plain[name]) -> None:
            for batch in batches:
                torch.from_numpy(np.stack([each(rows[i].path) for i in batch]))

        def read(loader: ImageLoader) -> None:
            for _ in loader.read(batches):
                pass

        contenders = {"plain": read_plainly, "ours": lambda f=fresh: read(f), "cached": lambda k=kept: read(k)}
        seconds = side_by_side(contenders, rounds, clock=time.process_time)
        rates = {key: len(rows) / value for key, value in seconds.items()}
        ratio = rates["ours"] / rates["plain"]
        table.add_row(name, f"{rates['plain']:.0f}", f"{rates['ours']:.0f}", f"{ratio:.2f}", f"{rates['cached']:.0f}")
        cache.close()
    console.print(table)


def waiting(rows: list[ImageRow], console: Console, workers: int, steps: int) -> None:
    """Train EfficientNet-Lite0 and time how long each step waits for its batch."""
    torch.set_num_threads(os.cpu_count() or 1)
    embedder = build_embedder("efficientnet-lite0", dim=128).train()
    loss = ProxyAnchorLoss(8, 128)
    optimizer = torch.optim.AdamW([*embedder.parameters(), *loss.parameters()], lr=1e-4)
    labels = torch.tensor([int(row.label) for row in rows])
    loader = ImageLoader(ImageDataset(rows, VIEW, Augmentation(0, flip=True, crop="random")), workers)
    random = np.random.default_rng(0)
    batches = [random.choice(len(rows), BATCH, replace=False).tolist() for _ in range(steps + 1)]
    reading = loader.read(batches)
    next(reading)  # the first batch waits for the workers to start
    waited = worked = 0.0
    for _ in range(steps):
        start = time.perf_counter()
        batch = next(reading)
        got = time.perf_counter()
        optimizer.zero_grad()
        loss(embedder(batch.images), labels[batch.rows]).backward()
        optimizer.step()
        waited, worked = waited + got - start, worked + time.perf_counter() - got
    loader.close()
    console.print(
        f"EfficientNet-Lite0 at 224, batches of {BATCH}, {workers} workers, {os.cpu_count()} cores: {steps} steps, "
        f"waited for data {100 * waited / (waited + worked):.1f}% of the time ({waited / steps * 1e3:.0f} of "
        f"{(waited + worked) / steps * 1e3:.0f} ms per step)"
    )


def pipeline(rows: list[ImageRow], console: Console, rounds: int) -> None:
    """Compare the network alone, on images in memory, with ``encode``, and with reading, then computing."""
    torch.set_num_threads(os.cpu_count() or 1)
    embedder = build_embedder("efficientnet-lite0").eval()
    paths = [row.path for row in rows]
    batches = [list(range(i, min(i + BATCH, len(rows)))) for i in range(0, len(rows), BATCH)]
    loader = ImageLoader(ImageDataset(rows, embedder.preprocessing))
    read = [batch.images.numpy() for batch in loader.read(batches)]
    console.print(f"{len(rows)} photos, EfficientNet-Lite0 at 224, batches of {BATCH}, {os.cpu_count()} cores:")
    table = Table("runtime", "clock", "network alone, images/s", "encode, images/s", "share", "in turn, share")
    for name in runtimes_at_hand()[:2]:  # the fastest of most machines come first
        runtime = build_runtime(name, embedder)

        def alone(runtime: Runtime = runtime) -> None:
            for images in read:
                embedder.embed_arrays(runtime.compute(images))

        def in_turn(runtime: Runtime = runtime) -> None:
            for batch in loader.read(batches):
                embedder.embed_arrays(runtime.compute(batch.images.numpy()))

        contenders = {
            "alone": alone,
            "encode": lambda runtime=runtime: embedder.encode(paths, BATCH, runtime=runtime),
            "turn": in_turn,
        }
        for clock in (time.perf_counter, time.process_time):
            seconds = side_by_side(contenders, rounds, clock)
            rates = [f"{len(rows) / seconds[key]:.0f}" for key in ("alone", "encode")]
            shares = [f"{seconds['alone'] / seconds[key]:.2f}" for key in ("encode", "turn")]
            table.add_row(name, "elapsed" if clock is time.perf_counter else "processor", *rates, *shares)
    console.print(table)


def again(rows: list[ImageRow], console: Console, place: Path) -> None:
    """Encode files, then the same files again, and embed them to a folder: what is computed once is kept."""
    embedder, paths = build_embedder("efficientnet-lite0").eval(), [row.path for row in rows]
    os.environ["TOPHIT_CACHE"] = str(place / "cache")  # an empty one
    calls = {
        "encode, for the first time": lambda: embedder.encode(paths, BATCH),
        "encode again": lambda: embedder.encode(paths, BATCH),
        "embed to a folder": lambda: embed_to_folder(embedder, rows, place / "vectors", runtime="torch"),
    }
    table = Table("of the same files, by torch", "images per processor second")
    for name, call in calls.items():
        start = time.process_time()
        call()
        table.add_row(name, f"{len(rows) / (time.process_time() - start):.0f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=["pipeline"], help="leave out the other parts")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        rows = write_photos(Path(folder), chosen.photos)
        kilobytes = sum(row.path.stat().st_size for row in rows) / len(rows) / 1000
        console.print(f"{len(rows)} photos of 500x375 pixels, {kilobytes:.0f} kB each, on one thread:")
        if not chosen.only:
            speed(rows, console, chosen.rounds)
        if chosen.steps and not chosen.only:
            waiting(rows, console, chosen.workers, chosen.steps)
        pipeline(rows, console, chosen.rounds)
        again(rows, console, Path(folder))


if __name__ == "__main__":
    main()
