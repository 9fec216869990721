"""Results as JSON and CSV: one entry per result, an item's metadata beside rank, score and id.

Metadata whose name is one of our own becomes ``metadata.NAME``.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from tophit.search.backend import Hit
from tophit.search.chances import CHANCE_DIGITS, Hits
from tophit.search.groups import GroupedHits

_OWN = ("query", "rank", "score", "chance", "id", "others", "best")


def results_as_json(titles: Sequence[str], found: Sequence[Sequence[Hit]], with_others: bool = False) -> list[Any]:
    """Return plain objects: of each query its title and results; in groups also the others, or how many there are."""
    return [{"query": title, **_answer(hits, with_others)} for title, hits in zip(titles, found, strict=True)]


def write_results_csv(
    titles: Sequence[str], found: Sequence[Sequence[Hit]], file: TextIO, with_others: bool = False
) -> None:
    """Write one row per result of all queries.

    ``others`` is the size of the rest of a group. With ``with_others``, the rest follows its best item: rows of the
    same rank whose column ``best`` is false.
    """
    rows = [
        {"query": title, **row} for title, hits in zip(titles, found, strict=True) for row in _rows(hits, with_others)
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["query", "rank", "score", "id"]
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _answer(hits: Sequence[Hit], with_others: bool) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for hit in hits:
        plain = {"rank": hit.rank, **_plain(hit)}
        if isinstance(hits, GroupedHits):
            plain["others"] = [_plain(other) for other in hit.others] if with_others else len(hit.others)
        results.append(plain)
    early = hits.stopped_at if isinstance(hits, GroupedHits) else None
    nothing = hits.nothing.plain() if isinstance(hits, Hits) and hits.nothing is not None else {}
    return {"results": results, **nothing, **({} if early is None else {"stopped_at": early})}


def _plain(hit: Hit) -> dict[str, Any]:
    told = {} if hit.chance is None else {"chance": round(hit.chance, CHANCE_DIGITS)}
    own = {"score": round(hit.score, 6), **told, "id": hit.id}
    return own | {_column(name): each for name, each in hit.metadata.items()}


def _rows(hits: Sequence[Hit], with_others: bool) -> Iterator[dict[str, Any]]:
    grouped = isinstance(hits, GroupedHits)
    for hit in hits:
        extra = {"others": len(hit.others)} if grouped else {}
        for one in (hit, *hit.others) if with_others else (hit,):
            told = (
                {}
                if hit.chance is None
                else {"chance": "" if one.chance is None else f"{one.chance:.{CHANCE_DIGITS}f}"}
            )
            own = {"rank": hit.rank, "score": f"{one.score:.6f}", **told, "id": one.id, **extra}
            if grouped and with_others:
                own["best"] = "true" if one is hit else "false"
            yield own | {_column(name): _text(value) for name, value in one.metadata.items()}


def _column(name: str) -> str:
    return f"metadata.{name}" if name in _OWN else name


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
