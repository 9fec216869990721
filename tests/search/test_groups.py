"""One result per group: the best item of each, the others with it, on every backend and after re-ranking."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.search.servers import Place
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import UsageError
from tophit.models import build_embedder
from tophit.reranking import AlphaExpansion, KReciprocal
from tophit.search import Hit, Index
from tophit.search.catalogue import build_catalogue
from tophit.search.groups import GroupedHits
from tophit.search.query import search_vectors


def unit_rows(count: int, seed: int = 0, dim: int = 8) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


VECTORS = unit_rows(60)
# Groups of different sizes, the same value as number, text and truth, and some items of no group.
SKUS: list[Any] = [[None, 1, "1", True, "a", "b", 2.5][i % 7] if i < 42 else f"long {i // 9}" for i in range(60)]
ITEMS = [{"n": i, **({} if sku is None else {"sku": sku})} for i, sku in enumerate(SKUS)]
QUERIES = unit_rows(3, seed=1)


def kind(value: Any) -> str:
    return "truth" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def slow_groups(order: list[int], k: int) -> list[tuple[str, set[str]]]:
    """Walk down a ranking: the first item of each group, and the rest of that group wherever it is."""
    groups: dict[Any, list[str]] = {}
    for i in order:
        groups.setdefault(("own", i) if SKUS[i] is None else (kind(SKUS[i]), SKUS[i]), []).append(f"{i:02}")
    return [(names[0], set(names[1:])) for names in list(groups.values())[:k]]


def shape(hits: list[Hit]) -> list[tuple[str, set[str]]]:
    return [(hit.id, {other.id for other in hit.others}) for hit in hits]


def filled(index: Index) -> Index:
    index.upsert([f"{i:02}" for i in range(60)], VECTORS, ITEMS)
    return index


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return filled(Index.create(tmp_path / "i", 8))


def test_groups_are_those_of_the_whole_ranking_on_every_backend(place: Place) -> None:
    with filled(place.create()) as index:
        for where, allowed in ((None, range(60)), ({"n": {"gte": 20}}, range(20, 60)), ({"sku": ["1", "a"]}, None)):
            chosen = [i for i in range(60) if SKUS[i] in ("1", "a")] if allowed is None else list(allowed)
            found = search_vectors(index, QUERIES, 5, where, group_by="sku")
            for query, hits in zip(QUERIES, found, strict=True):
                order = [i for i in np.argsort(-(VECTORS @ query)).tolist() if i in chosen]
                assert shape(hits) == slow_groups(order, 5)
                assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
                assert isinstance(hits, GroupedHits)
                assert hits.stopped_at is None


def test_others_are_ordered_by_their_similarity(index: Index) -> None:
    for hit in search_vectors(index, QUERIES[0], 5, group_by="sku")[0]:
        scores = [other.score for other in hit.others]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([float(VECTORS[int(each.id)] @ QUERIES[0]) for each in hit.others], abs=1e-5)
        assert hit.score >= max(scores, default=-1)


@pytest.mark.parametrize("steps", [[AlphaExpansion(3)], [KReciprocal(60, 8, 3)], [AlphaExpansion(3), KReciprocal(60)]])
def test_groups_follow_the_reranked_order(index: Index, steps: list[Any]) -> None:
    ranking = search_vectors(index, QUERIES, 60, rerank=steps)
    found = search_vectors(index, QUERIES, 6, rerank=steps, group_by="sku")
    for whole, hits in zip(ranking, found, strict=True):
        assert shape(hits) == slow_groups([int(hit.id) for hit in whole], 6)


def test_items_left_out_are_in_no_group(index: Index) -> None:
    without = [f"{i:02}" for i in range(60) if SKUS[i] == "a"][:3]
    hits = search_vectors(index, VECTORS[int(without[0])], 12, leave_out=[without], group_by="sku")[0]
    named = {hit.id for hit in hits} | {other.id for hit in hits for other in hit.others}
    assert not named & set(without)
    order = [i for i in np.argsort(-(VECTORS @ VECTORS[int(without[0])])).tolist() if f"{i:02}" not in without]
    assert shape(hits) == slow_groups(order, 12)


def test_it_looks_deeper_until_there_are_k_groups_and_says_where_it_stopped(tmp_path: Path) -> None:
    """One product has the 600 nearest pictures; four others come behind it."""
    near = np.zeros((604, 4), np.float32)
    near[:, 0], near[:600, 1], near[600:, 1] = 1, np.linspace(0, 0.1, 600), 2
    near[600:, 2] = range(4)
    with Index.create(tmp_path / "i", 4) as index:
        index.upsert([f"{i:03}" for i in range(604)], near, [{"sku": "big" if i < 600 else f"{i}"} for i in range(604)])
        deep = search_vectors(index, near[0], 5, group_by="sku")[0]
        assert [hit.id for hit in deep] == ["000", "600", "601", "602", "603"]
        assert [len(hit.others) for hit in deep] == [599, 0, 0, 0, 0]
        assert isinstance(deep, GroupedHits)
        assert deep.stopped_at is None  # the index has no sixth
        everything = search_vectors(index, near[0], 9, group_by="sku")[0]
        assert (len(everything), getattr(everything, "stopped_at", 0)) == (5, None)
        early = search_vectors(index, near[0], 5, group_by="sku", deepest=200)[0]
        assert [hit.id for hit in early] == ["000"]
        assert getattr(early, "stopped_at", None) == 200


def made_catalogue(pictures: Path, folder: Path) -> Path:
    """An index of the test pictures; a product is every second picture of a class."""
    from tophit.data.folders import manifest_from_folder
    from tophit.data.manifest import ImageRow

    rows = [
        ImageRow(row.path, row.label, metadata={"sku": f"{row.label[-1]}-{int(row.path.stem) % 2}", "id": 'own, "id"'})
        for row in manifest_from_folder(pictures).rows
    ]
    build_catalogue(build_embedder("small", "random", dim=8, size=32), rows, folder / "index")[0].close()
    return folder / "index"


def test_the_command_prints_groups_as_table_json_and_csv(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    index = made_catalogue(pictures, tmp_path)

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["search", str(index), *map(str, arguments)], catch_exceptions=False)

    query, second = pictures / "class 0" / "0.png", pictures / "class 1" / "0.png"
    groups = ["--group-by", "sku", "--k", 4]
    table = run(query, *groups).stdout
    assert "sku" in table
    assert "others" in table
    assert "0-0" in table
    assert run(query, "--group-by", "label").stdout.count("label") == 1, "one column, not two"
    (plain,) = json.loads(run(query, *groups, "--json").stdout)
    skus = [hit["sku"] for hit in plain["results"]]
    assert len(skus) == len(set(skus)) == 4
    assert plain["results"][0]["others"] == 2  # six pictures a class, three a product
    (whole,) = json.loads(run(query, *groups, "--others", "--json").stdout)
    assert [hit["sku"] for hit in whole["results"][0]["others"]] == [skus[0]] * 2
    rows = list(csv.DictReader(io.StringIO(run(query, second, *groups, "--csv").stdout)))
    assert [row["query"] for row in rows] == [str(query)] * 4 + [str(second)] * 4
    assert [row["sku"] for row in rows[:4]] == skus
    assert rows[0]["id"] == str(query)
    assert rows[0]["metadata.id"] == 'own, "id"'
    assert float(rows[0]["score"]) == pytest.approx(1, abs=1e-4)
    listed = list(csv.DictReader(io.StringIO(run(query, *groups, "--others", "--csv").stdout)))
    assert [(row["rank"], row["best"], row["sku"]) for row in listed[:3]] == [
        ("1", "true", skus[0]),
        ("1", "false", skus[0]),
        ("1", "false", skus[0]),
    ]
    ungrouped = list(csv.DictReader(io.StringIO(run(query, "--k", 3, "--csv").stdout)))
    assert [row["rank"] for row in ungrouped] == ["1", "2", "3"]
    assert "others" not in ungrouped[0]
    nothing = run(query, "--where", "sku=none", "--csv")
    assert nothing.stdout == "query,rank,score,id\n"
    for wrong, words in (
        (["--group-by", "skus"], r"No item has a field 'skus'.*sku"),
        (["--others"], r"add --group-by"),
        (["--json", "--csv"], r"one of --json and --csv"),
    ):
        with pytest.raises(UsageError, match=words):
            run(query, *wrong)
