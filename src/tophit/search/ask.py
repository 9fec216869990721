"""A question to a catalogue as a user puts it, on the command line or over HTTP, and its answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tophit.errors import UsageError
from tophit.images.decode import Box
from tophit.reranking import Reranking
from tophit.search.catalogue import Catalogue
from tophit.search.engine import Hit


@dataclass(frozen=True)
class Question:
    """What to search by: images, ids, or examples ``like`` and ``unlike`` (ids or files), and how.

    ``box`` cuts a part out of the one image. ``together`` makes one query of all images and ids: more like these.
    """

    images: Sequence[str | Path] = ()
    ids: Sequence[str] = ()
    box: Box | None = None
    like: Sequence[str] = ()
    unlike: Sequence[str] = ()
    together: bool = False
    k: int = 10
    where: Mapping[str, Any] | None = None
    rerank: Sequence[Reranking] = ()


@dataclass(frozen=True)
class Answer:
    """What was asked, in words, the image that asked if there is one, and what was found."""

    query: str
    image: Path | None
    hits: list[Hit]


def ask(catalogue: Catalogue, question: Question) -> list[Answer]:
    """Answer a question: one answer for every image and id, or a single one for examples."""
    _check(question)
    how = (question.k, question.where, question.rerank)
    if question.box is not None:
        image = Path(question.images[0])
        words = f"{image} ({','.join(f'{value:g}' for value in question.box)})"
        return [Answer(words, image, catalogue.search_box(image, question.box, *how))]
    like = [*question.like, *((*map(str, question.images), *question.ids) if question.together else ())]
    if like or question.unlike:
        wanted, unwanted = ([catalogue.example(text) for text in texts] for texts in (like, question.unlike))
        words = f"like {', '.join(like)}" + (f", unlike {', '.join(question.unlike)}" if question.unlike else "")
        first = next((each for each in wanted if isinstance(each, Path)), None)
        return [Answer(words, first, catalogue.search_examples(wanted, unwanted, *how))]
    answers: list[Answer] = []
    if question.images:
        found = catalogue.search([Path(each) for each in question.images], *how)
        answers += [Answer(str(p), Path(p), hits) for p, hits in zip(question.images, found, strict=True)]
    if question.ids:
        found = catalogue.search_ids(question.ids, *how)
        answers += [Answer(name, None, hits) for name, hits in zip(question.ids, found, strict=True)]
    return answers


def _check(question: Question) -> None:
    examples = bool(question.like or question.unlike)
    if not (question.images or question.ids or examples):
        raise UsageError("Say what to search for: an image, --id, or --like.")
    if question.unlike and not (question.like or question.together):
        raise UsageError("--unlike needs something that is wanted: --like, or images with --together.")
    if examples and (question.images or question.ids) and not question.together:
        raise UsageError("Images and ids stand alone; to search by them and by --like as one query, add --together.")
    if question.box is not None and (len(question.images) != 1 or question.ids or examples):
        raise UsageError("--box cuts out of one image; give exactly one, and no --id, --like or --unlike.")
