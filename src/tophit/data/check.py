"""Check a manifest before spending hours on it: open every image and report all problems in one table."""

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tophit.data.manifest import ImageRow, Manifest
from tophit.files import replace_file
from tophit.images.decode import BadImage, read_image
from tophit.progress import Progress


@dataclass(frozen=True)
class Problem:
    """One finding: its kind, the rows (counted from 1) it concerns, and a sentence."""

    kind: str
    rows: tuple[int, ...]
    detail: str


TOO_FEW = "too few classes"
KINDS = ("unreadable", "duplicate across splits", "class with one image", "class in two splits", TOO_FEW)


def check_manifest(manifest: Manifest, progress: Progress | None = None, threads: int = 4) -> list[Problem]:
    """Return all problems of a manifest: unreadable images, exact duplicates across splits (by pixels),
    classes with one image, classes present in two splits, and fewer than two classes in all or to train on.
    """
    with ThreadPoolExecutor(threads) as pool:
        looked_at: Iterable[bytes | BadImage] = pool.map(_look_at, manifest.rows)
        if progress:
            looked_at = progress(looked_at, len(manifest))
        findings = list(looked_at)
    problems = [
        Problem("unreadable", (number,), str(finding))
        for number, finding in enumerate(findings, 1)
        if isinstance(finding, BadImage)
    ]
    problems += _duplicates(manifest, findings) + _lonely_classes(manifest) + _shared_classes(manifest)
    return problems + _too_few_classes(manifest)


def write_problems(problems: Iterable[Problem], path: str | Path) -> None:
    """Write the findings as CSV: kind, rows, detail."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["kind", "rows", "detail"])
        writer.writerows([p.kind, " ".join(map(str, p.rows)), p.detail] for p in problems)


def _look_at(row: ImageRow) -> bytes | BadImage:
    """Return a digest of the row's pixels, or the reason they can't be read."""
    try:
        image = read_image(row.path, row.box)
    except BadImage as error:
        return error
    return hashlib.sha256(repr(image.size).encode() + image.tobytes()).digest()


def _duplicates(manifest: Manifest, findings: list[bytes | BadImage]) -> list[Problem]:
    places: dict[bytes, list[int]] = defaultdict(list)
    for number, finding in enumerate(findings, 1):
        if isinstance(finding, bytes):
            places[finding].append(number)
    return [
        Problem(
            "duplicate across splits",
            tuple(numbers),
            ", ".join(f"{manifest.rows[n - 1].path} ({manifest.rows[n - 1].split})" for n in numbers),
        )
        for numbers in places.values()
        if len({manifest.rows[n - 1].split for n in numbers}) > 1
    ]


def _lonely_classes(manifest: Manifest) -> list[Problem]:
    rows_of = _rows_by_class(manifest)
    return [
        Problem("class with one image", tuple(rows), f"class '{label}'")
        for label, rows in rows_of.items()
        if len(rows) == 1
    ]


def _shared_classes(manifest: Manifest) -> list[Problem]:
    if manifest.kind == "several":  # images of all splits share labels
        return []
    found = []
    for label, rows in _rows_by_class(manifest).items():
        splits = sorted({manifest.rows[n - 1].split for n in rows})
        if len(splits) > 1:
            found.append(Problem("class in two splits", tuple(rows), f"class '{label}' is in {' and '.join(splits)}"))
    return found


def _too_few_classes(manifest: Manifest) -> list[Problem]:
    """Return a problem if there is nothing to tell apart: among all images, or among those for training."""
    train = manifest.where("train")
    for part, words in ((manifest, "all images are"), (train, "all images for training are")):
        labels = sorted(set(part.labels))
        if len(labels) == 1:
            sentence = f"{words} of the class '{labels[0]}'; at least two classes are needed"
            return [Problem(TOO_FEW, (part.number(0),), sentence)]
    return []


def _rows_by_class(manifest: Manifest) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(manifest, 1):
        for name in row.classes:
            rows[name].append(number)
    return dict(sorted(rows.items()))
