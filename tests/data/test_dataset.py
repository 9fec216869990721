"""Reading batches: the same whatever the workers and the cache, nothing left behind, nothing waited for for ever."""

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tophit.data.dataset import ImageDataset, ImageLoader, explained, image_loader
from tophit.data.folders import manifest_from_folder
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError
from tophit.images.decoded import DecodedCache, decoded_cache
from tophit.images.preprocessing import Preprocessing
from tophit.images.views import Augmentation

AUGMENTATION = Augmentation(3, (0.3, 1.0), True, "random-resized")
VIEW = Preprocessing(size=24)


@pytest.fixture(scope="module")
def rows(pictures: Path) -> list[ImageRow]:
    return list(manifest_from_folder(pictures).rows)[:20]


def read(rows: list[ImageRow], workers: int, cache: DecodedCache | None = None, epochs=(0, 1)) -> list[torch.Tensor]:
    loader = ImageLoader(ImageDataset(rows, VIEW, AUGMENTATION, cache), workers)
    batches = [[5, 3, 1], [0, 2], [4, 6, 7, 8]]
    found = [batch.images for epoch in epochs for batch in loader.read(batches, epoch)]
    loader.close()
    return found


def test_views_do_not_depend_on_workers_or_on_the_other_rows_of_a_batch(rows: list[ImageRow]) -> None:
    alone = read(rows, 0)
    for workers in (1, 2):
        assert all(torch.equal(a, b) for a, b in zip(alone, read(rows, workers), strict=True))
    assert not torch.equal(alone[0], alone[3])  # another epoch, another view
    dataset = ImageDataset(rows, VIEW, AUGMENTATION)
    single = VIEW.normalise(torch.from_numpy(np.stack([dataset[(1, 3)][1]])))
    assert torch.equal(single[0], alone[3][1])


def test_a_cache_changes_nothing_and_is_read_in_the_second_epoch(rows: list[ImageRow], tmp_path: Path) -> None:
    copies = []
    for number, row in enumerate(rows):
        copies.append(ImageRow(tmp_path / f"{number}.png", row.label))
        (tmp_path / f"{number}.png").write_bytes(row.path.read_bytes())
    plain = read(copies, 0)
    for workers, path in ((0, None), (2, None), (2, tmp_path / "cache.pixels")):
        cache = DecodedCache(len(copies), 10**7, path)
        first = read(copies, workers, cache, epochs=(0,))
        assert all(torch.equal(a, b) for a, b in zip(plain, first, strict=False))
        assert cache.used_bytes == 9 * 32 * 32 * 3
        for copy in copies:
            copy.path.rename(copy.path.with_suffix(".away"))
        second = read(copies, workers, cache, epochs=(1,))
        assert all(torch.equal(a, b) for a, b in zip(plain[3:], second, strict=True))
        for copy in copies:
            copy.path.with_suffix(".away").rename(copy.path)
        cache.close()


def test_a_cache_is_bounded_and_keeps_no_more_of_a_picture_than_is_needed(tmp_path: Path) -> None:
    picture = Image.effect_noise((20, 20), 60).convert("RGB").resize((320, 320), Image.Resampling.BICUBIC)
    picture.save(tmp_path / "large.png")
    rows = [ImageRow(tmp_path / "large.png", "a")] * 3
    cache = DecodedCache(3, 2 * 32 * 32 * 3)
    dataset = ImageDataset(rows, Preprocessing(size=28), cache=cache)
    views = [dataset[index][1] for index in range(3)]
    assert cache.used_bytes == 2 * 32 * 32 * 3  # two of them fit; short sides of 28 / 0.875
    assert cache.get(2) is None
    assert all((a == views[0]).all() for a in views)
    direct = ImageDataset(rows[:1], Preprocessing(size=28))[0][1]
    assert np.abs(direct.astype(int) - views[0].astype(int)).mean() < 3
    cache.close()


def test_a_cache_on_disk_is_found_again_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.png"
    Image.new("RGB", (40, 40), "red").save(path)
    rows = [ImageRow(path, "a")]

    def cached() -> DecodedCache:
        found = decoded_cache("disk", [(row.path, row.box) for row in rows], 32, 0.001)
        assert found is not None
        return found

    first = cached()
    assert first.put(0, np.full((4, 5, 3), 7, np.uint8))
    again = cached()
    np.testing.assert_array_equal(again.get(0), np.full((4, 5, 3), 7, np.uint8))
    Image.new("RGB", (41, 40), "red").save(path)
    assert cached().get(0) is None
    assert decoded_cache("none", [], 32, 1.0) is None


def test_a_cache_is_whole_with_many_writers_and_survives_pickling() -> None:
    cache = DecodedCache(200, 10**7)

    def write(number: int) -> bool:
        return cache.put(number, np.full((1 + number % 7, 5, 3), number, np.uint8))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, range(200)))
        assert not any(pool.map(write, range(200)))  # what is kept is not kept twice
    for row in range(200):
        kept = cache.get(row)
        assert kept is not None
        assert (kept == row).all()
    copy = pickle.loads(pickle.dumps(cache))
    np.testing.assert_array_equal(copy.get(11), cache.get(11))
    cache.close()


def test_no_process_is_left_when_a_loader_is_closed_or_forgotten(rows: list[ImageRow]) -> None:
    before = set(multiprocessing.active_children())
    loader = ImageLoader(ImageDataset(rows, VIEW), 2)
    assert len(list(loader.read([[0], [1]]))) == 2
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    assert len(list(loader.read([[2], [3]], epoch=1))) == 2
    assert set(multiprocessing.active_children()) - before == workers  # the same serve every epoch
    loader.close()
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)
    assert len(list(image_loader(ImageDataset(rows, VIEW), 8, workers=1))) == 3
    assert not set(multiprocessing.active_children()) - before


@pytest.fixture
def within_minutes() -> Iterator[None]:
    timer = threading.Timer(300, lambda: os.kill(os.getpid(), signal.SIGALRM))
    timer.start()
    yield
    timer.cancel()


# torch tells of a dead worker by a signal handler, whose error may strike inside any ``__del__`` and be lost there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("within_minutes")
def test_a_killed_worker_is_told_in_a_sentence(rows: list[ImageRow]) -> None:
    before = set(multiprocessing.active_children())
    loader = ImageLoader(ImageDataset(rows, VIEW, AUGMENTATION), 1)
    reading = loader.read([[row % 20] for row in range(2000)])
    next(reading)
    (worker,) = set(multiprocessing.active_children()) - before

    def read_on_after_its_end() -> None:
        try:
            os.kill(worker.pid or 0, signal.SIGKILL)
            list(reading)
        except RuntimeError as error:  # the handler's error may strike between two batches too, as in training
            raise explained(error) from error

    with pytest.raises(TophitError, match=r"was killed, most likely because memory ran out; lower data\.workers"):
        read_on_after_its_end()
    loader.close()


@pytest.mark.usefixtures("within_minutes")
def test_ctrl_c_does_not_end_workers(rows: list[ImageRow]) -> None:
    before = set(multiprocessing.active_children())
    loader = ImageLoader(ImageDataset(rows, VIEW), 1)
    assert len(list(loader.read([[0]]))) == 1
    (worker,) = set(multiprocessing.active_children()) - before
    assert os.getpgid(worker.pid or 0) != os.getpgrp()  # nor does a signal to the whole group reach them
    os.kill(worker.pid or 0, signal.SIGINT)
    assert len(list(loader.read([[1], [2]]))) == 2
    loader.close()


def test_bad_images_are_noted_by_their_rows(rows: list[ImageRow], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no image")
    loader = ImageLoader(ImageDataset([rows[0], ImageRow(tmp_path / "bad.png", "x"), rows[1]], VIEW))
    (batch, nothing) = loader.read([[2, 1, 0], [1]])
    assert batch.rows.tolist() == [2, 0]
    assert batch.images.shape == (2, 3, 24, 24)
    assert list(batch.bad) == [1]
    assert (len(nothing.rows), list(nothing.bad)) == (0, [1])
