"""Parts of the page beside the evaluation: drawings, label problems and local centres, as plain values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tophit.report.pictures import Pictures

if TYPE_CHECKING:
    from tophit.report.drawing import Drawing
    from tophit.report.label_problems import LabelProblem
    from tophit.report.proxies import LocalCentre

_PROBLEMS = 12  # of each kind that are shown; the CSV has all
_CLASSES = 12  # whose centres are shown
_CENTRES = 4  # of each class


def drawings_part(drawings: Sequence["Drawing"]) -> list[dict[str, str]]:
    """Return the drawings as SVG for the page."""
    return [{"name": one.name, "title": one.title, "caption": one.caption, "svg": one.svg()} for one in drawings]


def problems_part(problems: Sequence["LabelProblem"], file: str, pictures: Pictures) -> dict[str, Any]:
    """Return the label problems, kind by kind in the order found, each with both pictures."""
    kinds: dict[str, list[LabelProblem]] = {}
    for one in problems:
        kinds.setdefault(one.kind, []).append(one)
    return {
        "found": len(problems),
        "file": file,
        "kinds": [
            {
                "name": kind,
                "title": kind[0].upper() + kind[1:],
                "found": len(found),
                "shown": [_problem(one, pictures) for one in found[:_PROBLEMS]],
            }
            for kind, found in kinds.items()
        ],
    }


def _problem(one: "LabelProblem", pictures: Pictures) -> dict[str, Any]:
    images = [
        {"picture": pictures.add(row), "label": row.label, "split": row.split, "file": "/".join(row.path.parts[-2:])}
        for row in (one.image, one.other)
    ]
    return {"images": images, "reason": one.reason, "advice": one.advice}


def centres_part(centres: Sequence["LocalCentre"], pictures: Pictures) -> dict[str, Any]:
    """Return the classes with most distinct centres; where each class has one proxy, classes at equal steps.

    Of proxies that have merged, the one with most images stands for all.
    """
    classes: dict[str, list[LocalCentre]] = {}
    for one in centres:
        classes.setdefault(one.label, []).append(one)
    count = max(len(each) for each in classes.values())
    kept = {label: len({one.centre for one in each}) for label, each in classes.items()}
    if count == 1:
        chosen = list(classes)[:: max(1, -(-len(classes) // _CLASSES))]
        text = f"The training images nearest to the proxy of {len(chosen)} of {len(classes):,} classes."
    else:
        chosen = sorted(classes, key=lambda label: -kept[label])[:_CLASSES]
        text = (
            f"Each class has {count} proxies; near ones merge. The training images nearest to each centre, of the "
            f"{len(chosen)} of {len(classes):,} classes with most centres."
        )
    return {"text": text, "classes": [_class(label, classes[label], kept[label], pictures) for label in chosen]}


def _class(label: str, proxies: Sequence["LocalCentre"], kept: int, pictures: Pictures) -> dict[str, Any]:
    images = sum(one.images for one in proxies)
    merged: dict[int, list[LocalCentre]] = {}
    for one in proxies:
        merged.setdefault(one.centre, []).append(one)
    groups = sorted(merged.values(), key=lambda group: -sum(one.images for one in group))[:_CENTRES]
    shown = []
    for group in groups:
        first = max(group, key=lambda one: one.images)
        own = sum(one.images for one in group)
        shown.append(
            {
                "number": first.proxy,
                "text": f"{own} of the class's {images} images",
                "nearest": [
                    {
                        "picture": pictures.add(near.row),
                        "similarity": round(near.similarity, 3),
                        "own": near.row.label == label,
                    }
                    for near in first.nearest
                ],
            }
        )
    return {"label": label, "kept": kept, "proxies": shown}
