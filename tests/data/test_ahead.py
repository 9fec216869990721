"""Working ahead: the same values in order, bounded, while the caller works; errors and early ends as without it."""

import threading
from collections.abc import Iterator

import pytest
import torch

from tophit.data.ahead import ahead
from tophit.data.dataset import ImageDataset, ImageLoader, image_loader
from tophit.data.folders import manifest_from_folder
from tophit.images.preprocessing import Preprocessing


def ahead_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "reads-ahead"]


def test_values_come_in_order_and_never_too_far_ahead() -> None:
    taken, distances = 0, []

    def values() -> Iterator[int]:
        for value in range(200):
            distances.append(value - taken)
            yield value

    found = []
    for value in ahead(values(), most=3):
        found.append(value)
        taken += 1
    assert found == list(range(200))
    assert max(distances) <= 3 + 2  # three wait, one is handed over, one is being made
    assert not ahead_threads()


def test_the_next_value_is_made_while_the_caller_works() -> None:
    made = threading.Event()

    def values() -> Iterator[str]:
        yield "first"
        made.set()
        yield "second"

    reading = ahead(values())
    assert next(reading) == "first"
    assert made.wait(60)  # without asking for the second
    assert list(reading) == ["second"]


def test_an_error_is_raised_after_the_values_before_it() -> None:
    def values() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    reading = ahead(values())
    assert next(reading) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(reading)
    assert not ahead_threads()


def test_the_thread_ends_with_a_caller_that_stops_early() -> None:
    reading = ahead(iter(range(10**9)))
    assert next(reading) == 0
    assert ahead_threads()
    reading.close()  # type: ignore[attr-defined]
    assert not ahead_threads()


def test_batches_read_ahead_are_the_same(pictures) -> None:
    rows = list(manifest_from_folder(pictures).rows)[:20]
    dataset = ImageDataset(rows, Preprocessing(size=24))
    batches = [[5, 3, 1], [0, 2], [4, 6, 7, 8]]
    plain = ImageLoader(dataset).read(batches)
    for one, other in zip(plain, image_loader(dataset, batches), strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.rows, other.rows)
