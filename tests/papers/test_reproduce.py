"""Every table and figure of the papers, on tiny sets in the sets' own layouts: a step or two per row."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from reference.set_trees import TREES
from tophit.cli import app
from tophit.comparing.workers import work
from tophit.errors import UsageError
from tophit.papers.entries import COMPUTED, entry_names, find_entry, rows_of
from tophit.papers.measured_rows import MeasuredTable
from tophit.papers.reproduce import compute_entry, reproduce
from tophit.papers.reproduction import Choice, begin, reopen

TINY = [
    *("embedder.backbone=small", "embedder.weights=random", "embedder.size=16", "embedder.dim=8"),
    *("data.partial=true", "batches.classes=2", "batches.per_class=2", "batches.size=8"),
]
TRAINED = [name for name in entry_names() if find_entry(name).draws not in COMPUTED]


@pytest.fixture(scope="session")
def sets(own_cache: Path) -> Callable[[str], str]:
    """Return the folder of a tiny set, made once by whichever test process comes first."""

    def folder(name: str) -> str:
        root = own_cache / "sets" / name
        with FileLock(own_cache / f"{name}.lock"):
            if not root.is_dir():
                TREES[name](root)
        return f"{name}:{root}"

    return folder


def made(name: str, data: str, out: Path, **choice: object) -> MeasuredTable:
    begin(name, data, out, Choice(**{"epochs": 1, "overrides": TINY, **choice}))  # pyright: ignore[reportArgumentType]
    work(out)
    return reproduce(reopen(out), train=False)


@pytest.mark.parametrize("name", TRAINED)
def test_every_table_and_figure_is_trained_and_written(name: str, sets: Callable[[str], str], tmp_path: Path) -> None:
    entry = find_entry(name)
    set_name = next(iter(entry.sets))
    rows = rows_of(entry, set_name)
    if entry.draws != "table":  # the recipes of figures are those of the tables: some are enough
        rows = rows[:2] + rows[-1:]
    names = [row.name for row in rows]
    # THSG's first epoch has no generated samples.
    found = made(name, sets(set_name), tmp_path, rows=names, epochs=2 if name.startswith("thsg") else 1)
    assert [row.failed for row in found.rows if row.failed] == []
    assert {row.name for row in found.rows} == set(names)
    for row in found.rows:
        assert row.quoted or all(row.cells[column].ours is not None for column in found.columns), row
    assert any("paper's numbers are left out: the data are not the whole set" in note for note in found.notes)
    assert any("embedder.backbone small instead of" in note for note in found.notes)
    for suffix in ("md", "csv", "html", "json"):
        assert (tmp_path / f"table.{suffix}").stat().st_size > 50
    drawn = {path.suffix for path in (tmp_path / "figures").glob("*")}
    assert drawn == (set() if entry.draws == "table" else {".png", ".svg", ".pdf", ".csv"})


@pytest.mark.parametrize("name", [name for name in entry_names() if find_entry(name).is_computed])
def test_what_follows_from_equations_needs_no_data(name: str, tmp_path: Path) -> None:
    found = compute_entry(name, tmp_path)
    assert (tmp_path / "table.html").is_file()
    if name == "mpa/table-3":
        for row in found.rows:
            for cell in row.cells.values():
                assert cell.ours is not None
                assert cell.paper is not None
                assert round(cell.ours, 1) == cell.paper
    else:
        assert list((tmp_path / "figures").glob("*.csv"))


def test_curves_of_figure_4_count_triplets(sets: Callable[[str], str], tmp_path: Path) -> None:
    made("topk/figure-4", sets("cub200"), tmp_path, rows=["Semi Hard Triplet", "top-k precision"], epochs=2)
    lines = (tmp_path / "figures" / "along_tuples.csv").read_text().splitlines()
    first, last = (list(map(float, filter(None, line.split(",")))) for line in (lines[1], lines[2]))
    assert last[0] > first[0] > 0  # the number of tuples so far


def test_an_interrupted_paper_continues_and_two_workers_share_it(
    sets: Callable[[str], str], tmp_path: Path, tophit: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    out = tmp_path / "table"
    tiny = [part for each in TINY for part in ("--set", each)]
    command = [sys.executable, "-m", "tophit.cli"]
    arguments = ["paper", "mpa/table-7", "--data", sets("cub200"), "--out", str(out), "--epochs", "1", "--workers", "1"]
    process = subprocess.Popen(
        [*command, *arguments, *tiny], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    first = out / "results" / "K-1" / "seed-0.json"
    while not first.is_file():
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert f"tophit paper {out}" in " ".join(said.split())
    before = first.stat().st_mtime_ns
    helpers = [
        subprocess.Popen([*command, "paper", str(out), "--worker"], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    did = [int(helper.communicate(timeout=300)[0].split()[1]) for helper in helpers]
    assert sum(did) <= 4  # the first one was finished before
    shown = tophit("paper", out).stdout
    assert "K = 16" in shown
    assert first.stat().st_mtime_ns == before
    assert len(list(out.glob("results/*/seed-0.json"))) == 5
    assert not list(out.glob("work/*/*"))
    assert json.loads((out / "table.json").read_text())["rows"][0]["seeds"] == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["topk/table1"], "Did you mean 'topk/table-1'?"),
        (["topk/table-1", "--data", "CUB"], "--out runs/NAME"),
        (["topk/table-1", "--out", "OUT"], "with the files of cub200 or cars196 or sop"),
        (["pnp/table-1", "--data", "CUB", "--out", "OUT"], "is about sop"),
        (["topk/table-1", "--data", "CUB", "--out", "OUT", "--rows", "Tripplet"], "There is no row 'Tripplet'"),
        (["mpa/table-4", "--data", "CUB", "--out", "OUT", "--rows", "HDC"], "only quoted from the paper"),
    ],
)
def test_mistakes_are_told_before_any_work(
    arguments: list[str], told: str, sets: Callable[[str], str], tmp_path: Path
) -> None:
    places = {"CUB": sets("cub200"), "OUT": str(tmp_path / "out")}
    result = CliRunner().invoke(app, ["paper", *(places.get(each, each) for each in arguments)])
    assert isinstance(result.exception, UsageError)
    assert told in str(result.exception)
    assert not (tmp_path / "out").exists()
