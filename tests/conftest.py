"""What several tests share: a cache of their own, and small sets of real files."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # there is a worker on each core already; before torch is imported

import numpy as np
import pytest
from filelock import FileLock
from PIL import Image, ImageDraw
from tests.comparing.toy import toy_data  # noqa: F401  (a fixture)
from tests.reporting.reported import opened, report_page, reported, single_page  # noqa: F401  (fixtures)
from tests.search.servers import milvus_server, place, postgres_server  # noqa: F401  (fixtures)
from tests.serve.pages import browser, page, server  # noqa: F401  (fixtures)
from tests.serve.served import admin, client, serve, served, served_copy, tokens  # noqa: F401  (fixtures)
from tests.working import working, working_folder  # noqa: F401  (fixtures)

from tophit.data.icons import icon_set
from tophit.data.manifest import Manifest

collect_ignore = ["fixtures/make_formats.py"]  # it runs with the code of an old commit, whose names may be gone


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the tests out of the user's cache and settings; the workers share one of each."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "tophit-cache"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TOPHIT_CACHE", str(folder))
        patched.setenv("TOPHIT_CONFIG", str(shared / "tophit-config"))
        yield folder


@pytest.fixture(scope="session")
def icons(own_cache: Path) -> Manifest:
    """The demo set, drawn once by whichever worker comes first."""
    with FileLock(own_cache / "icons.lock"):
        return icon_set()


def draw_picture(kind: int, seed: int, side: int = 32) -> Image.Image:
    """Draw a picture of a class: its polygon and colour are the class's, place and size the picture's own."""
    random = np.random.default_rng((kind, seed))
    colour = tuple(int(c) for c in np.random.default_rng(kind).integers(0, 200, 3))
    picture = Image.new("RGB", (side, side), "white")
    x, y = random.uniform(side * 0.4, side * 0.6, 2)
    radius = random.uniform(side * 0.25, side * 0.38)
    ImageDraw.Draw(picture).regular_polygon((x, y, radius), 3 + kind % 5, random.uniform(0, 30), fill=colour)
    return picture


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 8 class folders with 6 small pictures each."""
    folder = tmp_path_factory.mktemp("pictures")
    for kind in range(8):
        (folder / f"class {kind}").mkdir()
        for number in range(6):
            draw_picture(kind, number).save(folder / f"class {kind}" / f"{number}.png")
    return folder


@pytest.fixture
def tophit() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command line in a process of its own, as a user does."""

    def run(
        *arguments: object, check: int | None = 0, timeout: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tophit.cli", *map(str, arguments)],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "200", **environment},
            timeout=timeout,
        )
        assert check is None or done.returncode == check, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
