"""Manifests from folders of images, and from any data that a recipe names."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tophit.data.feature_files import SUFFIX, manifest_of_features
from tophit.data.levels import with_levels
from tophit.data.manifest import SPLITS, ImageRow, Manifest, read_manifest
from tophit.data.splits import split_classes
from tophit.errors import TophitError, UsageError
from tophit.images.formats import needed_for, readable_suffixes
from tophit.registry import names

SETS_AND_FOLDER = "such as cub200:CUB_200_2011"
_KINDS = 6  # of files left out, that are told by name
_OUTSIDE, _HIDDEN, _BROKEN = "image outside class folders", "hidden image", "broken link"
_PLURALS = {_OUTSIDE: "images outside class folders", _HIDDEN: "hidden images", _BROKEN: "broken links"}


def open_data(
    name: str,
    test_share: float = 0.5,
    seed: int = 0,
    set_name: str | None = None,
    partial: bool = False,
    boxes: bool = False,
    levels: Sequence[str] = (),
) -> Manifest:
    """Return the manifest a user names: a built-in set, a CSV, Parquet or feature file, or a folder of class folders.

    ``levels`` are metadata columns above the label, which make it a path in a hierarchy (``with_levels``).

    Write ``./icons`` for a folder with the same name as a built-in set. Write ``cub200:FOLDER`` for a folder that
    holds the files of a benchmark set, or pass ``set_name``; ``partial`` and ``boxes`` apply only to these.
    """
    return with_levels(_opened(name, test_share, seed, set_name, partial, boxes), levels)


def _opened(name: str, test_share: float, seed: int, set_name: str | None, partial: bool, boxes: bool) -> Manifest:
    if name == "icons":
        from tophit.data.icons import icon_set

        return icon_set()
    check_data(name)
    path = Path(name).expanduser()
    prefix, rest = _set_and_folder(name)
    if prefix or (set_name is not None and path.is_dir()):
        from tophit.data.sets import read_set

        return read_set(prefix or str(set_name), rest if prefix else path, partial, boxes, own_images=not prefix)
    if path.is_dir():
        return manifest_from_folder(path, test_share, seed)
    if path.suffix in (".csv", ".parquet"):
        return read_manifest(path)
    return manifest_of_features(path)


def check_data(name: str) -> None:
    """Raise if a name is not one that ``open_data`` can open; nothing is read."""
    path = Path(name).expanduser()
    if name == "icons" or _set_and_folder(name)[0] or path.is_dir() or path.suffix in (".csv", ".parquet", SUFFIX):
        return
    raise UsageError(
        f"No data at '{name}': expected a manifest (.csv, .parquet), a feature file (.npz), a folder of class folders, "
        f"the set 'icons', or a benchmark set and its folder ({SETS_AND_FOLDER})."
    )


def set_read(name: str, set_name: str | None = None) -> str | None:
    """Return the benchmark set that ``open_data`` reads from its original files for a name; None for other data."""
    if name == "icons":
        return None
    return _set_and_folder(name)[0] or (set_name if Path(name).expanduser().is_dir() else None)


def whole_path(name: str) -> str:
    """Return the name of data with an absolute path, if it names a file or folder, so it works from any folder."""
    if name == "icons":
        return name
    prefix, rest = _set_and_folder(name)
    if prefix:
        return f"{prefix}:{Path(rest).expanduser().absolute()}"
    path = Path(name).expanduser()
    return str(path.absolute()) if path.exists() else name


def _set_and_folder(name: str) -> tuple[str, str]:
    """Return the benchmark set and the folder of ``cub200:FOLDER``; empty strings for any other name."""
    prefix, colon, rest = name.partition(":")
    return (prefix, rest) if colon and prefix in names("set") else ("", "")


def open_images(name: str) -> Manifest:
    """Return the images a user wants to index: like ``open_data``, but a folder may hold images in any layout.

    In a folder an image's label is the name of the sub-folder it is in, empty for an image in the folder itself.
    """
    path = Path(name).expanduser()
    if name == "icons" or not path.is_dir():
        return open_data(name)
    left_out = Counter[str]()
    found = image_files(path, left_out)
    told = _left_out(path, left_out)
    if not found:
        raise TophitError(f"{path} has no images ({', '.join(sorted(readable_suffixes()))}). {told}".rstrip())
    rows = tuple(ImageRow(p, "" if p.parent == path else p.parent.name) for p in found)
    return Manifest(rows, str(path), left_out=told)


def check_split(split: str) -> None:
    """Raise if ``part_of`` knows no such part."""
    if split not in (*SPLITS, "all"):
        raise UsageError(f"The split must be {', '.join(SPLITS)} or all, not '{split}'.")


def part_of(manifest: Manifest, split: str) -> Manifest:
    """Return the rows of one split, or all rows for ``all``; it is an error if there are none."""
    check_split(split)
    part = manifest if split == "all" else manifest.where(split)
    if not len(part):
        raise TophitError(f"{manifest.source} has no images in the split '{split}'.")
    return part


def manifest_from_folder(folder: str | Path, test_share: float = 0.5, seed: int = 0) -> Manifest:
    """Build a manifest from a folder with one sub-folder per class.

    Sub-folders ``train`` and ``test`` (each holding class folders) define the split; with ``query`` and ``gallery``
    all images are for testing; otherwise ``test_share`` of the classes, chosen by ``seed``, are for testing.
    """
    folder = _existing(folder)
    names = {child.name for child in folder.iterdir() if child.is_dir()}
    left_out = Counter[str]()
    if names and names <= {"train", "validation", "test"}:
        for child in folder.iterdir():
            _count_loose(child, left_out)
        rows = [
            ImageRow(path, label, split)
            for split in sorted(names)
            for path, label in class_images(folder / split, left_out)
        ]
    elif names == {"query", "gallery"}:
        return manifest_from_query_gallery(folder / "query", folder / "gallery")
    else:
        found = list(class_images(folder, left_out))
        splits = split_classes([label for _, label in found], test_share, seed)
        rows = [ImageRow(path, label, splits[label]) for path, label in found]
    return _manifest(rows, folder, left_out)


def manifest_from_query_gallery(query: str | Path, gallery: str | Path) -> Manifest:
    """Build a test manifest from two folders of class folders: what is searched for, and what is searched."""
    query, gallery = _existing(query), _existing(gallery)
    left_out = Counter[str]()
    rows = [ImageRow(path, label, "test", "query") for path, label in class_images(query, left_out)]
    rows += [ImageRow(path, label, "test", "gallery") for path, label in class_images(gallery, left_out)]
    return _manifest(rows, query.parent, left_out)


def class_images(folder: Path, left_out: Counter[str]) -> Iterator[tuple[Path, str]]:
    """Yield every image below each class folder with the class folder's name, sorted by path.

    ``left_out`` counts other files by their kind.
    """
    for child in sorted(folder.iterdir()):
        _count_loose(child, left_out)
        if child.name.startswith("."):
            left_out[_HIDDEN] += len(image_files(child, Counter()))
        elif child.is_dir():
            yield from ((path, child.name) for path in image_files(child, left_out))


def image_files(folder: str | Path, left_out: Counter[str]) -> list[Path]:
    """Return the images below a folder, sorted; ``left_out`` counts other files by their kind.

    Links to folders are followed. What is hidden, by a name that begins with a dot, is passed over, and counted if it
    is an image.
    """
    return sorted(path for path, hidden in _files(str(folder)) if _is_image(path, hidden, left_out))


def _count_loose(path: Path, left_out: Counter[str]) -> None:
    """Count what is beside class folders, unless it is a folder."""
    if not path.is_dir():
        left_out[_OUTSIDE] += _is_image(path, path.name.startswith("."), left_out)


def _files(folder: str) -> Iterator[tuple[Path, bool]]:
    """Yield the files below a folder, and whether they are hidden; a folder to which several links lead comes once."""
    seen = {str(above) for above in Path(folder).resolve().parents}  # a link back would lead round and round
    for inside, folders, files in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(inside)) in seen:
            folders.clear()
            continue
        seen.add(real)
        hidden = f"{os.sep}." in inside[len(folder) :]
        yield from ((Path(inside, name), hidden or name.startswith(".")) for name in files)


def _is_image(path: Path, hidden: bool, left_out: Counter[str]) -> bool:
    """Return whether a file is an image in sight; if not, count it by its kind, but for what nobody would miss."""
    readable = path.suffix.lower() in readable_suffixes()
    if not path.is_file():
        left_out[_BROKEN] += path.is_symlink() and not hidden
    elif readable and not hidden:
        return True
    elif readable or not hidden:
        left_out[_HIDDEN if hidden else path.suffix.lower()] += 1
    return False


def _left_out(folder: Path, left_out: Counter[str]) -> str:
    """Return a sentence on the files that a scan left out, by count and kind; empty if there are none.

    >>> _left_out(Path("photos"), Counter({".txt": 3, "": 1}))
    'Left out of photos: 3 .txt, 1 without an ending.'
    """
    left_out = +left_out  # without what was counted zero times
    if not left_out:
        return ""
    told: list[str] = []
    for kind, count in left_out.most_common(_KINDS):
        needed = needed_for(kind)
        name = (kind if count == 1 else _PLURALS.get(kind, kind)) or "without an ending"
        told.append(f"{count:,} {name}" + (f" (install {needed})" if needed else ""))
    rest = sum(left_out.values()) - sum(count for _, count in left_out.most_common(_KINDS))
    return f"Left out of {folder}: {', '.join(told)}{f', {rest:,} of other kinds' if rest else ''}."


def _existing(folder: str | Path) -> Path:
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.")
    return folder


def _manifest(rows: list[ImageRow], folder: Path, left_out: Counter[str]) -> Manifest:
    told = _left_out(folder, left_out)
    if not rows:
        others = ", ".join(sorted(readable_suffixes() - {".jpg"}))
        sentence = f"{folder} has no class folders with images; expected {folder}/CLASS/NAME.jpg (or {others}). {told}"
        raise TophitError(sentence.rstrip())
    return Manifest(tuple(rows), str(folder), left_out=told)
