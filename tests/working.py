"""A folder to run examples and the code of pages in: ``photos/`` with one folder per class, and ``query.jpg``.

``other_photos/`` has other classes.
"""

import shutil
from pathlib import Path

import pytest

CLASSES = ("bird", "cat", "dog", "fish", "horse", "mouse", "sheep", "whale")


@pytest.fixture(scope="session")
def working_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder; its pictures are embedded once, since features are cached."""
    from tests.conftest import draw_picture

    folder = tmp_path_factory.mktemp("working")
    for kind, name in enumerate(CLASSES):
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(6):
            draw_picture(kind, number, 64).save(folder / "photos" / name / f"{number}.jpg")
    for kind in range(10, 18):
        (folder / "other_photos" / f"thing {kind}").mkdir(parents=True)
        for number in range(3):
            draw_picture(kind, number, 64).save(folder / "other_photos" / f"thing {kind}" / f"{number}.jpg")
    draw_picture(CLASSES.index("fish"), 99, 64).save(folder / "query.jpg")
    return folder


@pytest.fixture
def working(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the current folder, without the runs of other tests; runs choose on one split, to be quick."""
    monkeypatch.setattr("tophit.training.loop.splits_wanted", lambda *given: 1)
    shutil.rmtree(working_folder / "runs", ignore_errors=True)
    monkeypatch.chdir(working_folder)
    return working_folder
