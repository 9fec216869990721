"""iNaturalist 2018 with the class split of Smooth-AP: 5,690 species for training, 2,452 others for testing.

The taxonomy is in categories.json, which was published later; where it lies beside the annotations, every image gets
its ranks from kingdom to genus.
"""

import json
from pathlib import Path
from typing import Any

from tophit.data.manifest import ImageRow
from tophit.data.sets.benchmark import Count, benchmark_set
from tophit.data.sets.layout import table
from tophit.errors import TophitError

_IMAGES = "train_val2018.tar.gz"
_SPLITS = "Inat_dataset_splits.zip (the split files that the Smooth-AP repository links to)"
_JSON = "{0}2018.json.tar.gz"
_CATEGORIES = "categories.json"
_RANKS = ("kingdom", "phylum", "class", "order", "family", "genus")


@benchmark_set(
    "inaturalist",
    title="iNaturalist 2018",
    marker="train2018.json",
    archives=f"{_IMAGES}, {_JSON.format('train')}, {_JSON.format('val')} and {_SPLITS}",
    licence="non-commercial research and education; each photo has its own",
    counts=(Count("train", 5_690, 325_846), Count("test", 2_452, 136_093)),
)
def inaturalist(root: Path, boxes: bool) -> list[ImageRow]:
    """Read the split's lines, paths such as train_val2018/Aves/3007/NAME.jpg; labels come from the annotations."""
    species_of, about = _annotations(root)
    rows = []
    for split in ("train", "test"):
        listed = root / "Inat_dataset_splits" / f"Inaturalist_{split}_set1.txt"
        for (path,) in table(listed, 1, _SPLITS):
            species = species_of.get(path)
            if species is None:
                raise TophitError(f"{listed}: '{path}' is in neither train2018.json nor val2018.json.")
            metadata = {**about.get(species, {"species": ""}), "super_class": Path(path).parts[1]}
            rows.append(ImageRow(root / path, str(species), split, metadata=metadata))
    return rows


def _annotations(root: Path) -> tuple[dict[str, int], dict[int, dict[str, str]]]:
    """Return the species of each file, and the name of each species with its ranks where they are known."""
    species_of: dict[str, int] = {}
    about: dict[int, dict[str, str]] = {}
    for part in ("train", "val"):
        path = root / f"{part}2018.json"
        if not path.is_file():
            raise TophitError(f"Missing: {path}. It is in {_JSON.format(part)}.")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            file_of = {image["id"]: image["file_name"] for image in content["images"]}
            species_of |= {file_of[each["image_id"]]: each["category_id"] for each in content["annotations"]}
            about |= {each["id"]: _about(each) for each in content["categories"]}
        except (ValueError, KeyError, TypeError) as error:
            raise TophitError(f"{path} does not hold iNaturalist's annotations: {error!r}.") from error
    return species_of, about | _taxonomy(root / _CATEGORIES)


def _about(category: dict[str, Any]) -> dict[str, str]:
    ranks = {rank: str(category[rank]) for rank in _RANKS if category.get(rank)}
    return {"species": str(category.get("name", "")), **ranks}


def _taxonomy(path: Path) -> dict[int, dict[str, str]]:
    """Return the name and the ranks of each species; nothing where the file is not there."""
    if not path.is_file():
        return {}
    try:
        return {each["id"]: _about(each) for each in json.loads(path.read_text(encoding="utf-8"))}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TophitError(f"{path} does not hold iNaturalist's categories: {error!r}.") from error
