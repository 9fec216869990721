"""The demo: from icon fonts to a search, in one call. The next call reuses each finished part."""

import json
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from tophit.data.icons import icon_set, pixel_vectors
from tophit.data.manifest import ImageRow, Manifest
from tophit.evaluation import RetrievalMetrics
from tophit.files import write_json
from tophit.images.sheet import SheetCell, contact_sheet
from tophit.models.embedder import load
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.search.catalogue import Catalogue, build_catalogue, open_catalogue
from tophit.search.versions import is_catalogue, read_versions
from tophit.tables import metrics_table
from tophit.training import resume, train
from tophit.training.building import make_embedder
from tophit.training.evaluate import evaluate_rows, metrics_of_vectors
from tophit.training.run import Run

QUERIES = 8
RESULTS = 10


def run_demo(recipe: Recipe, folder: Path, console: Console, view: View) -> None:
    """Build the icon set, train, evaluate on unseen classes, index, search; print and draw the results."""
    console.print("[bold]1. Data[/]: the same icon in independent icon families", highlight=False)
    manifest = icon_set(progress=view.track("Drawing"))
    test = manifest.where("test")
    classes = {split: len(set(manifest.where(split).labels)) for split in ("train", "test")}
    view.note(
        f"   {len(manifest)} images of {len(set(manifest.labels))} icons; {classes['train']} icons to learn from, "
        f"{classes['test']} others to test on"
    )
    console.print("[bold]2. Before[/]: what pixels and the pretrained network find", highlight=False)
    models = _cached_json(folder / "before.json", lambda: _before(recipe, test, view))
    console.print("[bold]3. Training[/]: the whole network, Proxy-Anchor loss", highlight=False)
    result = _train_or_reuse(recipe, folder, view)
    models["trained"] = {"metrics": result["test"], "intervals": result["intervals"]}
    console.print("[bold]4. Index and search[/]", highlight=False)
    catalogue = _index_or_reuse(folder, test, view)
    sheet = folder / "sheet.png"
    contact_sheet(_search_examples(catalogue, test), sheet)
    view.note(f"   {len(catalogue.index)} test images indexed in {folder / 'index'}; results drawn into {sheet}")
    console.print(f"\n[bold]On icons never seen in training[/] ({len(test)} queries; % and 95% interval over classes)")
    console.print(metrics_table({name: (m["metrics"], m["intervals"]) for name, m in models.items()}))
    console.print("Next, see on a page what it finds and what it misses (takes a few minutes):")
    console.print(f"  tophit report {folder}", highlight=False, soft_wrap=True)
    console.print("Or use your own images, one folder per class (.venv/bin/tophit if the venv is not active):")
    console.print("  tophit train head --data PATH/TO/IMAGES --run runs/mine", highlight=False)
    console.print("  tophit index PATH/TO/IMAGES --run runs/mine --out runs/mine/index", highlight=False)


def serve_demo(recipe: Recipe, folder: Path, console: Console, view: View, port: int) -> None:
    """Serve the page on the demo's index until stopped, with the network before training for comparison."""
    from tophit.serve import start_server
    from tophit.serve.config import ServeConfig
    from tophit.serve.security import make_access

    console.print("[bold]5. The page[/]: search in your browser", highlight=False)
    before = folder / "index-before"
    if not is_catalogue(before) or read_versions(before).current is None:
        pretrained = make_embedder(recipe, head=False)
        build_catalogue(pretrained, icon_set().where("test").rows, before, view.track("Indexing"))[0].close()
    config = ServeConfig(folder / "index", against=before, run=folder)
    start_server(config, make_access("127.0.0.1", None), "127.0.0.1", _free_port(port), console)


def _free_port(port: int) -> int:
    """Return the port if nothing listens there, else 0, which means any free one."""
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return port
    return 0


def _before(recipe: Recipe, test: Manifest, view: View) -> dict[str, Any]:
    """Measure the baselines before training: pixels, pretrained features, and these through an untrained head."""
    torch.manual_seed(recipe.seed)
    features, untrained = make_embedder(recipe, head=False), make_embedder(recipe)
    return {
        "raw pixels": _plain(metrics_of_vectors(pixel_vectors(test), test.rows, 0.95)),
        "pretrained backbone, no head": _plain(
            evaluate_rows(features, test.rows, 0.95, progress=view.track("Features"))
        ),
        "pretrained backbone, untrained head": _plain(evaluate_rows(untrained, test.rows, 0.95)),
    }


def _plain(metrics: RetrievalMetrics) -> dict[str, Any]:
    return {"metrics": dict(metrics), "intervals": metrics.intervals}


def _cached_json(path: Path, make: Any) -> dict[str, Any]:
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, make())
    return json.loads(path.read_text(encoding="utf-8"))


def _train_or_reuse(recipe: Recipe, folder: Path, view: View) -> dict[str, Any]:
    run = Run(folder)
    if not run.checkpoint_path.is_file():
        return train(recipe, folder, view)
    if run.result() is not None:
        view.note(f"   reusing the finished run in {folder} (delete the folder to train again)")
    return resume(folder, view)


def _index_or_reuse(folder: Path, test: Manifest, view: View) -> Catalogue:
    embedder = load(folder / "best")
    if (folder / "index" / "index.json").is_file():  # of an earlier version of Tophit
        shutil.rmtree(folder / "index")
    if is_catalogue(folder / "index"):
        catalogue = open_catalogue(folder / "index")
        if catalogue.index.fingerprint == embedder.fingerprint():
            return catalogue
        catalogue.close()
    return build_catalogue(embedder, test.rows, folder / "index", view.track("Indexing"), replace=True)[0]


def _search_examples(catalogue: Catalogue, test: Manifest) -> list[tuple[SheetCell, Sequence[SheetCell]]]:
    """Search for some test images, evenly spread over the set; each query is left out of its own results."""
    chosen: list[ImageRow] = [test.rows[i] for i in range(len(test) // (2 * QUERIES), len(test), len(test) // QUERIES)]
    found = catalogue.search([row.path for row in chosen], RESULTS + 1)
    rows: list[tuple[SheetCell, Sequence[SheetCell]]] = []
    for row, hits in zip(chosen, found, strict=True):
        others = [hit for hit in hits if hit.id != str(row.path.absolute())][:RESULTS]
        cells = [
            SheetCell(
                Path(hit.metadata["path"]),
                f"{hit.metadata['label']}\n{hit.score:.2f} {hit.metadata['family']}",
                hit.metadata["label"] == row.label,
            )
            for hit in others
        ]
        rows.append((SheetCell(row.path, f"{row.label}\n{row.metadata['family']}"), cells))
    return rows[:QUERIES]
