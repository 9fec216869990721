"""Cached activations: what is kept, what is computed again, and what a kill, a full disk or a second process does."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tophit.data.folders import open_data
from tophit.data.manifest import ImageRow
from tophit.embedding.activations import Activations, Wanted, as_input, cached_activations
from tophit.errors import TophitError, UsageError
from tophit.images.decode import read_image
from tophit.images.views import Augmentation
from tophit.models import Embedder, build_embedder
from tophit.models.cut import run_tail
from tophit.progress import View

CROPS = Augmentation(seed=0, scale=(0.5, 1.0), flip=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "activations"


@pytest.fixture
def embedder() -> Embedder:
    torch.manual_seed(0)
    return build_embedder("small", "random", dim=8, size=32).eval()


@pytest.fixture
def rows(pictures: Path) -> list[ImageRow]:
    return open_data(str(pictures)).rows[:10]


class Notes(View):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


def one(embedder: Embedder, rows: list[ImageRow], views: int = 0, frozen: int = 2, **options: object) -> Activations:
    return cached_activations(embedder, frozen, [Wanted(rows, views)], CROPS, **options)[0]  # type: ignore[arg-type]


def everything(found: Activations) -> np.ndarray:
    return np.array(found.values[found.records])


@pytest.mark.parametrize("frozen", [0, 1, 2, 3])
def test_the_tail_gives_from_the_cache_what_the_network_gives_from_the_picture(
    cache: Path, embedder: Embedder, rows: list[ImageRow], frozen: int
) -> None:
    found = one(embedder, rows, frozen=frozen)
    with torch.inference_mode():
        images = torch.stack([torch.from_numpy(embedder.preprocessing(read_image(row.path))) for row in rows])
        expected = embedder.features(images)
        stored = found.read(np.arange(len(rows)))
        features = run_tail(embedder, frozen, as_input(embedder, stored))
    assert stored.dtype == (torch.float16 if frozen else torch.uint8)
    tolerance = 2e-3 if frozen else 1e-6
    torch.testing.assert_close(features, expected, rtol=tolerance, atol=tolerance)


def test_float32_is_exact(cache: Path, embedder: Embedder, rows: list[ImageRow]) -> None:
    found = one(embedder, rows, precision="float32")
    with torch.inference_mode():
        images = torch.stack([torch.from_numpy(embedder.preprocessing(read_image(row.path))) for row in rows])
        features = run_tail(embedder, 2, as_input(embedder, found.read(np.arange(len(rows)))))
        torch.testing.assert_close(features, embedder.features(images))


def test_views_differ_and_depend_on_the_content_only(
    cache: Path, embedder: Embedder, rows: list[ImageRow], tmp_path: Path
) -> None:
    found = everything(one(embedder, rows, views=4))
    assert found.shape[:2] == (10, 4)
    assert all(len(np.unique(found[i].reshape(4, -1), axis=0)) == 4 for i in range(10))
    moved = [ImageRow(tmp_path / f"{i}.png", "other", "train") for i in range(10)]
    for row, other in zip(rows, moved, strict=True):
        shutil.copy(row.path, other.path)
    notes = Notes()
    again = one(embedder, moved[::-1], views=4, view=notes)
    assert notes.said == []  # nothing was computed
    np.testing.assert_array_equal(everything(again), found[::-1])


def test_more_views_keep_the_first_ones_and_other_weights_share_nothing(
    cache: Path, embedder: Embedder, rows: list[ImageRow]
) -> None:
    two = everything(one(embedder, rows, views=2))
    notes = Notes()
    three = everything(one(embedder, rows, views=3, view=notes))
    np.testing.assert_array_equal(three[:, :2], two)
    assert "10 views" in notes.said[0]
    head, tail = embedder.backbone.get_submodule("layers.0"), embedder.backbone.get_submodule("layers.12")
    with torch.no_grad():
        next(tail.parameters()).add_(1)  # after the cut: it changes nothing before it
    notes = Notes()
    one(embedder, rows, views=3, view=notes)
    assert notes.said == []
    with torch.no_grad():
        next(head.parameters()).add_(0.1)
    assert np.abs(everything(one(embedder, rows, views=3)).astype(np.float32) - three).max() > 0


def test_an_unreadable_image_is_reported_and_the_others_stay_in_place(
    cache: Path, embedder: Embedder, rows: list[ImageRow], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a picture")
    gone = ImageRow(tmp_path / "gone.png", "x", "train")
    mixed = [rows[0], ImageRow(broken, "x", "train"), rows[1], gone]
    found = one(embedder, mixed, views=2)
    assert found.rows == [0, 2]
    assert sorted(found.bad) == [1, 3]
    np.testing.assert_array_equal(everything(found), everything(one(embedder, rows[:2], views=2)))
    again = one(embedder, mixed, views=2)
    assert sorted(again.bad) == [1, 3]


def test_the_size_is_told_before_and_too_much_is_refused_with_what_would_fit(
    cache: Path, embedder: Embedder, rows: list[ImageRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    each = 64 * 8 * 8 * 2  # 64 channels of 8 x 8 in float16
    notes = Notes()
    one(embedder, rows, views=4, view=notes)
    assert f"after the stage block 2 are computed once: 40 views, {40 * each / 1e6:.1f} MB" in notes.said[0]
    fits = r"allows 0\.4 MB\. What would fit: augment\.views: 4, or embedder\.last: 1; or"  # no size below 32 pixels
    with pytest.raises(UsageError, match=rf"need 0\.7 MB \(80 views of 8\.2 kB\), and .*{fits}"):
        one(embedder, rows, views=8, most_gb=45 * each / 1e9)
    usage = shutil.disk_usage(cache)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=25 * each))
    with pytest.raises(TophitError, match=r"has 0\.2 MB free\. .*augment\.views: 2"):
        one(embedder, rows, views=9)


def test_activations_too_large_for_float16_are_refused(cache: Path, embedder: Embedder, rows: list[ImageRow]) -> None:
    norm = embedder.backbone.get_submodule("layers.5")
    with torch.no_grad():
        norm.get_parameter("weight").fill_(1e6)
    with pytest.raises(TophitError, match=r"too large for float16; set data\.activations: float32"):
        one(embedder, rows)
    assert np.isfinite(everything(one(embedder, rows, precision="float32"))).all()


def test_a_full_disk_keeps_what_is_there_and_the_next_run_completes_it(
    cache: Path, embedder: Embedder, rows: list[ImageRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writes = os.pwrite, []

    def full(*arguments: object) -> int:
        writes.append(arguments)
        if len(writes) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("tophit.embedding.activations.BATCH", 4)
    monkeypatch.setattr("tophit.embedding.record_store._ENTER_EVERY", 0.0)
    with monkeypatch.context() as filling:
        filling.setattr("os.pwrite", full)
        with pytest.raises(TophitError, match=r"is full\. What is there already is kept"):
            one(embedder, rows, views=2)
    (values,) = cache.glob("*/values.bin")
    assert values.stat().st_size == 4 * 64 * 8 * 8 * 2  # the room that was claimed is given back
    notes = Notes()
    found = one(embedder, rows, views=2, view=notes)
    assert "16 views" in notes.said[0]  # 4 of the 20 were kept
    shutil.rmtree(cache)
    np.testing.assert_array_equal(everything(found), everything(one(embedder, rows, views=2)))


def test_no_room_is_noticed_before_anything_is_computed(
    cache: Path, embedder: Embedder, rows: list[ImageRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    monkeypatch.setattr("tophit.embedding.activations._fill", lambda *_: pytest.fail("computed"))
    with pytest.raises(TophitError, match="is full"):
        one(embedder, rows)


def test_a_file_that_was_cut_is_completed(cache: Path, embedder: Embedder, rows: list[ImageRow]) -> None:
    found = everything(one(embedder, rows, views=2))
    (values,) = cache.glob("*/values.bin")
    os.truncate(values, values.stat().st_size // 3)
    notes = Notes()
    np.testing.assert_array_equal(everything(one(embedder, rows, views=2, view=notes)), found)
    assert "14 views" in notes.said[0]


# Another process that computes the same activations, and stops at the third batch until it is told to go on.
OTHER = """
import sys, torch
from tests.embedding import test_activations as here
from tophit.data.folders import open_data
from tophit.embedding import activations, record_store
from tophit.models import build_embedder

activations.BATCH, record_store._ENTER_EVERY = 4, 0.0

class Stopping(here.Notes):
    def note(self, message):
        print(message.split(";")[0], flush=True)

    def track(self, description):
        def wrapped(items, total):
            for number, item in enumerate(items):
                if number == 2 and "stop" in sys.argv:
                    print("stopped", flush=True)
                    sys.stdin.readline()
                yield item
        return wrapped

torch.manual_seed(0)
embedder = build_embedder("small", "random", dim=8, size=32).eval()
found = here.one(embedder, open_data(sys.argv[1]).rows[:10], 2, view=Stopping())
print("done", here.everything(found).astype("f8").sum(), flush=True)
"""


def start(pictures: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(pictures), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_killed_in_the_middle_it_continues_with_what_was_entered(
    cache: Path, embedder: Embedder, rows: list[ImageRow], pictures: Path
) -> None:
    process = start(pictures, "stop")
    assert line_of(process).startswith("Activations after the stage")
    assert line_of(process) == "stopped"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    notes = Notes()
    found = everything(one(embedder, rows, views=2, view=notes))
    assert "12 views" in notes.said[0]  # the first two batches of four are there
    shutil.rmtree(cache)
    np.testing.assert_array_equal(found, everything(one(embedder, rows, views=2)))


class LetsGo(Notes):
    """Lets the other process go on once this one waits for it."""

    def __init__(self, other: subprocess.Popen[str]) -> None:
        super().__init__()
        self.other = other

    def note(self, message: str) -> None:
        super().note(message)
        if message.startswith("Another process is computing the same activations"):
            assert self.other.stdin is not None
            self.other.stdin.write("go on\n")
            self.other.stdin.flush()


def test_a_second_process_waits_for_the_first_and_finds_what_it_computed(
    cache: Path, embedder: Embedder, rows: list[ImageRow], pictures: Path
) -> None:
    first = start(pictures, "stop")
    line_of(first)
    assert line_of(first) == "stopped"
    notes = LetsGo(first)
    found = everything(one(embedder, rows, views=2, view=notes))
    assert len(notes.said) == 2
    assert float(first.communicate()[0].removeprefix("done")) == pytest.approx(found.astype("f8").sum())
    (values,) = cache.glob("*/values.bin")
    assert values.stat().st_size == 20 * 64 * 8 * 8 * 2  # nothing was computed twice
