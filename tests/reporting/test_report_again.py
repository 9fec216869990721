"""A report that nothing has changed for is not made again, and is told at once; any change makes a new one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.reporting.reported import MISLABELLED, Reported
from tests.reporting.test_report_files import content_of

from tophit.api import report
from tophit.errors import UsageError
from tophit.reporting.sources import digest_of_sources, unchanged


@pytest.fixture
def page(single_page: Path, reported: Reported, tmp_path: Path) -> Path:
    """The page of the run with proxies, in a folder of its own."""
    for path in single_page.parent.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    assert unchanged(tmp_path / single_page.name, reported.other, None, None) is not None
    return tmp_path / single_page.name


def test_the_command_tells_the_verdict_again_without_torch(page: Path, reported: Reported) -> None:
    words = ["report", str(reported.other), "--out", str(page)]
    code = (
        "import sys\n"
        "from tophit.cli import app\n"
        f"try: app({words!r})\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    before = page.read_bytes()
    environment = {**os.environ, "COLUMNS": "1000"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    content = content_of(page)
    assert done.stdout.startswith(f"{content['headline']} {content['verdict']}\n")
    assert f"Nothing has changed since it was made: {page}" in done.stdout
    assert page.read_bytes() == before


def test_a_page_that_stays_as_it_is_need_not_be_writable(
    page: Path, reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tophit.reporting.request.os.access", lambda *_: False)  # root may write anywhere
    assert not report(reported.other, out=page).is_new
    page.with_name("report_label_problems.csv").unlink()
    with pytest.raises(UsageError, match=r"can't be written; name another place with --out"):
        report(reported.other, out=page)


CHANGES: dict[str, Callable[[Reported], Path]] = {
    "a picture": lambda reported: reported.images / MISLABELLED,
    "a label": lambda reported: reported.images / "manifest.csv",
    "the model": lambda reported: reported.other / "best" / "embedder.json",
    "a calibration": lambda reported: reported.other / "best" / "calibration.json",
    "the result": lambda reported: reported.other / "result.json",
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_makes_a_new_one(name: str, page: Path, reported: Reported) -> None:
    path = CHANGES[name](reported)
    before, facts = (path.read_bytes(), path.stat()) if path.exists() else (b"{}", None)
    text = before.replace(b"class 10,", b"class 11,") if path.suffix == ".csv" else before + b" "
    assert text != before
    path.write_bytes(text)
    try:
        assert unchanged(page, reported.other, None, None) is None
    finally:
        path.unlink() if facts is None else path.write_bytes(before)
        if facts is not None:
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert unchanged(page, reported.other, None, None) is not None


def test_another_spelling_of_the_same_paths_makes_no_new_one(
    page: Path, reported: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, data = reported.other, reported.images / "manifest.csv"
    (tmp_path / "link").symlink_to(reported.other.parent)
    monkeypatch.chdir(reported.other.parent)
    near = reported.images.relative_to(reported.other.parent)
    spellings = [
        Path(run.name),
        Path(".") / run.name,
        Path("..") / run.parent.name / run.name,
        tmp_path / "link" / run.name,
    ]
    for spelled in spellings:
        for images in (None, str(data), f"{near}/manifest.csv", f"./{near}/../{near}/manifest.csv"):
            assert unchanged(page, spelled, None, images) is not None, (spelled, images)
    against = {digest_of_sources(run, spelled, None) for spelled in (str(run), f"./{run.name}", f"{run.name}/")}
    assert len(against) == 1
    assert against != {digest_of_sources(run, None, None)}
    folders = {digest_of_sources(run, None, spelled) for spelled in (str(reported.images), str(near), f"{near}/")}
    assert len(folders) == 1


def test_another_question_makes_a_new_one(page: Path, reported: Reported) -> None:
    assert unchanged(page, reported.other, str(reported.run), None) is None
    assert unchanged(page, reported.run, None, None) is None
    page.with_name("report_label_problems.csv").unlink()
    assert unchanged(page, reported.other, None, None) is None
