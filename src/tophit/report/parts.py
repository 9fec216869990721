"""Parts of the page beside the evaluation: drawings, label problems and local centres, as plain values."""

from collections import Counter
from collections.abc import Callable, Sequence
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
    """Return the classes with most centres in use; where each class has one proxy, classes at equal steps.

    A centre is a group of proxies that have merged. It is in use if a training image of its class is nearer to it than
    to the class's other centres; the others are left out.
    """
    classes: dict[str, list[list[LocalCentre]]] = {}
    for label, proxies in _by(centres, lambda one: one.label).items():
        groups = list(_by(proxies, lambda one: str(one.centre)).values())
        groups.sort(key=lambda group: -_images(group))
        classes[label] = [group for group in groups if _images(group)] or groups[:1]
    count = max(Counter(one.label for one in centres).values())
    if count == 1:
        chosen = list(classes)[:: max(1, -(-len(classes) // _CLASSES))]
        text = f"The training images nearest to the proxy of {len(chosen)} of {len(classes):,} classes."
    else:
        chosen = sorted(classes, key=lambda label: -len(classes[label]))[:_CLASSES]
        text = (
            f"Each class has {count} proxies; near ones merge, and some hold no image. The training images nearest to "
            f"each centre in use, of the {len(chosen)} of {len(classes):,} classes with most of them."
        )
    text += (
        f" Under each picture: its cosine similarity to the {'proxy' if count == 1 else 'centre'}. They are the "
        "nearest of all training images, whether or not they belong to it; where the class is another, its name "
        "stands there."
    )
    return {"text": text, "classes": [_class(label, classes[label], pictures) for label in chosen]}


def _by(centres: Sequence["LocalCentre"], name: Callable[["LocalCentre"], str]) -> dict[str, list["LocalCentre"]]:
    groups: dict[str, list[LocalCentre]] = {}
    for one in centres:
        groups.setdefault(name(one), []).append(one)
    return groups


def _images(group: Sequence["LocalCentre"]) -> int:
    return sum(one.images for one in group)


def _class(label: str, groups: Sequence[Sequence["LocalCentre"]], pictures: Pictures) -> dict[str, Any]:
    images = sum(_images(group) for group in groups)
    shown = []
    for group in groups[:_CENTRES]:
        first = max(group, key=lambda one: one.images)
        nearest = [
            {"picture": pictures.add(near.row), "similarity": round(near.similarity, 3), "own": near.row.label == label}
            for near in first.nearest
        ]
        text = f"{_images(group)} of the class's {images} images"
        shown.append({"number": first.proxy, "text": text, "nearest": nearest})
    return {"label": label, "used": len(groups), "proxies": shown}
