"""Chances of results: beside the score, as ends of lists, as names, and kept with the model that they belong to."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.conftest import draw_picture
from typer.testing import CliRunner

import tophit as package
from tophit.calibrating import NAME, read_calibration
from tophit.cli import app
from tophit.cli.shell import console
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError, UsageError
from tophit.evaluation.calibration import Calibration
from tophit.models import build_embedder
from tophit.models.learned import LearnedClasses
from tophit.search.backend import Hit
from tophit.search.catalogue import Catalogue, build_catalogue, open_catalogue
from tophit.search.chances import Hits, LeastChance
from tophit.search.reembed import reembed

Run = Callable[..., Any]
KINDS, EACH = 24, 6
NEW = 31


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 24 classes, and one of noise, which is like none of them."""
    folder = tmp_path_factory.mktemp("drawn")
    for kind in range(KINDS):
        (folder / f"kind {kind}").mkdir()
        for number in range(EACH):
            draw_picture(kind, number).save(folder / f"kind {kind}" / f"{number}.png")
    noise = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    return folder


def rows_of(folder: Path, kinds: range = range(KINDS), split: str = "test") -> list[ImageRow]:
    paths = [folder / f"kind {kind}" / f"{number}.png" for kind in kinds for number in range(EACH)]
    return [ImageRow(path, path.parent.name, split, metadata={"shelf": path.stem}) for path in paths]


def saved_model(folder: Path, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    build_embedder("small", "random", dim=16, size=32).save(folder)
    return folder


def made(folder: Path, rows: list[ImageRow], model: Path) -> Catalogue:
    return build_catalogue(package.load(model), rows, folder)[0]


@pytest.fixture(scope="module")
def index(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    made(folder / "index", rows_of(drawn), saved_model(folder / "model")).close()
    return folder / "index"


@pytest.fixture
def tophit(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)

    return run


def chances_of(hits: list[Any]) -> list[float]:
    return [hit.chance for hit in hits]


def test_results_have_the_chances_of_their_labels(index: Path, drawn: Path) -> None:
    query = drawn / "kind 3" / "0.png"
    with open_catalogue(index) as catalogue:
        (hits,) = catalogue.search([query], k=12)
        others = catalogue.search_ids([str(query)], k=5)[0]
    assert len(hits) == 12
    assert all(0 <= hit.chance <= 1 for hit in hits)
    by_label = {(hit.metadata["label"], hit.chance) for hit in hits}
    assert len(by_label) == len({label for label, _ in by_label}) > 1
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.chance is not None for hit in others)


def test_chances_do_not_depend_on_how_many_results_are_wanted(index: Path, drawn: Path) -> None:
    query = [drawn / "kind 5" / "1.png"]
    with open_catalogue(index) as catalogue:
        few, many = catalogue.search(query, k=2)[0], catalogue.search(query, k=30)[0]
    assert chances_of(few) == chances_of(many)[:2]


def test_a_least_chance_leaves_out_the_rest(index: Path, drawn: Path) -> None:
    query = [drawn / "kind 3" / "0.png"]
    with open_catalogue(index) as catalogue:
        whole = catalogue.search(query, k=20)[0]
        least = sorted((hit.chance or 0 for hit in whole), reverse=True)[4]
        cut = catalogue.search(query, k=20, min_chance=least)[0]
    assert [hit.id for hit in cut] == [hit.id for hit in whole if (hit.chance or 0) >= least]
    assert 5 <= len(cut) < 20


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0.01, 1))
def test_a_precision_keeps_as_many_of_the_likeliest_as_have_it_on_average(told: list[float], wanted: float) -> None:
    kept = LeastChance(precision=wanted).kept(told)
    chances = sorted(told, reverse=True)
    literally = [n for n in range(1, len(chances) + 1) if np.mean(chances[:n]) >= wanted - 1e-9]
    assert sorted(np.array(told)[kept], reverse=True) == chances[: max(literally, default=0)]
    least = LeastChance(min_chance=wanted).kept(told)
    assert least.tolist() == [chance >= wanted for chance in told]


def test_nothing_is_an_answer(index: Path, drawn: Path, tophit: Run) -> None:
    noise = drawn / "noise.png"
    with open_catalogue(index) as catalogue:
        nearest = max(catalogue.search([noise])[0], key=lambda hit: hit.chance or 0)
        (hits,) = catalogue.search([noise], min_chance=0.9)
    assert hits == []
    assert isinstance(hits, Hits)
    assert hits.nothing is not None
    assert (hits.nothing.score, hits.nothing.chance) == (nearest.score, nearest.chance)
    assert f"right with a chance of {nearest.chance:.0%}, less than 90%" in hits.nothing.reason
    done = tophit("search", index, noise, "--min-chance", 0.9)
    assert done.exit_code == 0
    assert "Nothing here is like this" in done.stdout
    as_csv = tophit("search", index, noise, "--min-chance", 0.9, "--csv")
    assert as_csv.stdout == "query,rank,score,id\n"
    assert "Nothing here is like this" in as_csv.stderr
    (answer,) = json.loads(tophit("search", index, noise, "--precision", 0.9, "--json").stdout)
    assert answer["results"] == []
    assert "Nothing here is like this" in answer["reason"]
    assert answer["best_score"] == pytest.approx(nearest.score, abs=1e-5)
    assert answer["best_chance"] == pytest.approx(nearest.chance, abs=1e-4)


@pytest.mark.parametrize(
    ("chance", "words"),
    [
        (0.002, "Nothing here is like this: the likeliest result is right with a chance of <1%, less than 95%."),
        (0.64, "Nothing here is likely enough: the likeliest result is right with a chance of 64%, less than 95%."),
    ],
)
def test_what_is_likelier_right_than_wrong_is_not_called_unlike(chance: float, words: str) -> None:
    assert LeastChance(precision=0.95).nothing(Hit(1, 0.7, "an id", {}, chance=chance)).reason == words


def test_a_filter_that_nothing_meets_is_told_apart(index: Path, drawn: Path) -> None:
    with open_catalogue(index) as catalogue:
        (hits,) = catalogue.search([drawn / "noise.png"], where={"shelf": "99"}, min_chance=0.5)
    assert isinstance(hits, Hits)
    assert hits.nothing is not None
    assert hits.nothing.reason == "There is nothing to find: no item meets the filter."


def test_tables_json_and_csv_have_the_chance(index: Path, drawn: Path, tophit: Run) -> None:
    query = drawn / "kind 7" / "2.png"
    assert "chance" in tophit("search", index, query, "--k", 2).stdout
    (answer,) = json.loads(tophit("search", index, query, "--k", 2, "--json").stdout)
    assert [0 <= hit["chance"] <= 1 for hit in answer["results"]] == [True, True]
    rows = list(csv.DictReader(io.StringIO(tophit("search", index, query, "--k", 2, "--csv").stdout)))
    assert float(rows[0]["chance"]) == answer["results"][0]["chance"], "as they are told, with the same digits"


def test_long_paths_are_shown_below_their_folder_in_a_narrow_terminal(
    index: Path, drawn: Path, tophit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 80)
    shown = tophit("search", index, drawn / "kind 7" / "2.png", "--k", 9, "--where", "label=kind 7,kind 8").stdout
    assert "kind 7/2.png" in shown.split("┡")[1], "in one piece"
    assert f"paths in {drawn}" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_the_best_of_a_group_has_its_own_chance(index: Path, drawn: Path) -> None:
    query = [drawn / "kind 7" / "2.png"]
    with open_catalogue(index) as catalogue:
        single = {hit.id: hit.chance for hit in catalogue.search(query, k=60)[0]}
        (grouped,) = catalogue.search(query, k=4, group_by="label")
        (cut,) = catalogue.search(query, k=4, group_by="label", min_chance=0.99999)
    assert [hit.chance for hit in grouped] == [single[hit.id] for hit in grouped if hit.id in single]
    assert cut == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--min-chance", 1.5], "--min-chance is a chance, above 0 and at most 1"),
        (["--precision", 0], "--precision is a chance"),
        (["--min-chance", 0.5, "--rerank", "alpha-qe"], "leave --rerank"),
        (["--min-chance", 0.5, "--together"], "calibrated for the plain scores of single pictures"),
    ],
)
def test_wrong_use_is_refused(index: Path, drawn: Path, tophit: Run, arguments: list[Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        tophit("search", index, drawn / "noise.png", *arguments)


def test_combined_and_reranked_results_have_no_chance(index: Path, drawn: Path) -> None:
    first, second = (drawn / "kind 1" / f"{number}.png" for number in range(2))
    with open_catalogue(index) as catalogue:
        hits = catalogue.search_examples([first, second], k=3)
    assert chances_of(hits) == [None, None, None]


def test_an_index_without_a_calibration_says_what_to_run(drawn: Path, tmp_path: Path, tophit: Run, index: Path) -> None:
    small = tmp_path / "small"
    made(small, rows_of(drawn, range(3)), saved_model(tmp_path / "model")).close()
    with pytest.raises(UsageError, match=r"no calibration.*tophit calibrate"):
        tophit("search", small, drawn / "noise.png", "--min-chance", 0.5)
    with pytest.raises(UsageError, match="tophit calibrate"):
        tophit("name", small, drawn / "noise.png")
    with open_catalogue(small) as catalogue:
        assert chances_of(catalogue.search([drawn / "noise.png"], k=2)[0]) == [None, None]
    with pytest.raises(UsageError, match=r"at least 8 classes .* not 3.*--data PATH"):
        tophit("calibrate", small)


def test_names_with_evidence_or_unknown(index: Path, drawn: Path, tophit: Run) -> None:
    known, noise = drawn / "kind 4" / "3.png", drawn / "noise.png"
    with open_catalogue(index) as catalogue:
        first, second = catalogue.name([known, noise])
        (alone,) = catalogue.name([known], where={"label": ["kind 5", "kind 6"]}, cut_off=0)
    assert first.label == first.guess == "kind 4"
    assert first.chance >= 0.5
    assert first.evidence[0].metadata["label"] == "kind 4"
    assert second.chance < first.chance
    assert alone.label in ("kind 5", "kind 6")
    answers = json.loads(tophit("name", index, known, noise, "--json", "--cut-off", 0.99999).stdout)
    assert [answer["label"] for answer in answers] == [None, None]
    assert answers[0]["guess"] == "kind 4"
    assert answers[0]["evidence"][0]["label"] == "kind 4"
    assert "unknown: the best guess" in tophit("name", index, known, "--cut-off", 0.99999).stdout
    with pytest.raises(UsageError, match="--cut-off is a chance"):
        tophit("name", index, known, "--cut-off", 2)
    assert package.name(index, [known])[0].label == "kind 4"


@pytest.mark.parametrize("where", [None, {"label": ["kind 5", "kind 6"]}, {"shelf": 2}])
def test_search_and_name_tell_the_same(index: Path, drawn: Path, where: dict[str, Any] | None) -> None:
    """A filter leaves items out but makes no label likelier, for a name as for a result."""
    queries = [drawn / "kind 4" / "3.png", drawn / "noise.png"]
    with open_catalogue(index) as catalogue:
        found = catalogue.search(queries, k=100, where=where)
        names = catalogue.name(queries, where=where, cut_off=0)
        everything = catalogue.search(queries, k=200)
    for hits, name, whole in zip(found, names, everything, strict=True):
        assert name.chance == max(chances_of(hits))
        assert name.chance in [hit.chance for hit in hits if hit.metadata["label"] == name.guess]
        told = {hit.id: hit.chance for hit in whole}
        assert chances_of(name.evidence) == [told[hit.id] for hit in name.evidence]


def test_a_calibration_of_an_earlier_version_still_works(index: Path, drawn: Path, tmp_path: Path, tophit: Run) -> None:
    shutil.copytree(index, tmp_path / "index")
    path = tmp_path / "index" / "v1" / NAME
    fields = json.loads(path.read_text())
    del fields["right_scores"], fields["check"]["by_scores"]
    path.write_text(json.dumps({**fields, "format": 1}))
    with open_catalogue(tmp_path / "index") as catalogue:
        told = chances_of(catalogue.search([drawn / "noise.png"])[0])
        assert told == sorted(told, reverse=True), "by scores, as it told them then"
        assert catalogue.calibration is not None
        assert any("make them again with: tophit calibrate" in each for each in catalogue.calibration.sentences())
    tophit("calibrate", tmp_path / "index")
    assert json.loads(path.read_text())["format"] == 2


def test_new_classes_need_no_training(index: Path, drawn: Path, tmp_path: Path) -> None:
    """Three pictures of a class that nobody has seen are enough to name the fourth."""
    shutil.copytree(index, tmp_path / "index")
    new = [ImageRow(drawn / f"new {number}.png", "new") for number in range(3)]
    for number in range(4):
        draw_picture(NEW, number).save(drawn / f"new {number}.png")
    with open_catalogue(tmp_path / "index", writable=True) as catalogue:
        before = catalogue.name([drawn / "new 3.png"])[0]
        catalogue.add(new)
        after = catalogue.name([drawn / "new 3.png"])[0]
    assert before.guess != "new"
    assert after.guess == "new"


def test_a_calibration_belongs_to_one_model(index: Path, drawn: Path, tmp_path: Path) -> None:
    """The file of another model is not used, and goes away when the index is calibrated again."""
    other = tmp_path / "index"
    made(other, rows_of(drawn, range(3)), saved_model(tmp_path / "other model", seed=1)).close()
    shutil.copy(index / "v1" / NAME, other / "v1" / NAME)
    with open_catalogue(other) as catalogue:
        assert catalogue.calibration is None
    made(other, rows_of(drawn, range(3)), tmp_path / "other model").close()
    assert not (other / "v1" / NAME).exists()


def test_a_new_model_is_calibrated_anew(index: Path, tmp_path: Path) -> None:
    shutil.copytree(index, tmp_path / "index")
    done = reembed(tmp_path / "index", package.load(saved_model(tmp_path / "new", seed=2)))
    with open_catalogue(tmp_path / "index") as old, open_catalogue(tmp_path / "index", version=done.version) as new:
        assert old.calibration is not None
        assert new.calibration is not None
        assert new.calibration.fingerprint == new.embedder.fingerprint() != old.calibration.fingerprint


def test_an_index_with_few_classes_takes_its_models_calibration(index: Path, drawn: Path, tmp_path: Path) -> None:
    model = saved_model(tmp_path / "model")
    with open_catalogue(index) as catalogue:
        assert catalogue.calibration is not None
        catalogue.calibration.save(model)
    with made(tmp_path / "index", rows_of(drawn, range(4)), model) as few:
        assert few.calibration is not None
        assert few.calibration.calibration.classes == KINDS
        assert few.calibration.per_class == EACH
        assert few.search([drawn / "kind 1" / "0.png"], k=1)[0][0].chance is not None


def test_classes_that_the_model_learned_do_not_calibrate(drawn: Path, tmp_path: Path) -> None:
    rows = rows_of(drawn, range(12), "train") + rows_of(drawn, range(12, KINDS))
    with made(tmp_path / "index", rows, saved_model(tmp_path / "model")) as catalogue:
        assert catalogue.calibration is not None
        assert catalogue.calibration.calibration.classes == 12
        assert catalogue.calibration.calibration.items == KINDS * EACH
        assert "12 classes of this index that the model has not learned" in catalogue.calibration.learned_from
    shutil.copytree(drawn, tmp_path / "labelled", ignore=shutil.ignore_patterns("noise.png"))
    by_others = package.calibrate(tmp_path / "index", tmp_path / "labelled")
    assert by_others.calibration.classes == 12, "other photos of learned classes do not calibrate either"
    assert repr(by_others).startswith("Chances are calibrated on 12 classes")


def test_a_model_remembers_which_classes_it_learned(drawn: Path, tmp_path: Path) -> None:
    """Also where nothing says which images it was trained on: in other folders, and in an index that changes models."""
    for name, learned in (("first", 12), ("second", 6)):
        embedder = package.load(saved_model(tmp_path / name, seed=learned))
        embedder.learned = LearnedClasses.of(f"kind {kind}" for kind in range(learned))
        embedder.save(tmp_path / name)
    assert "kind 3" not in (tmp_path / "first" / "learned.json").read_text(), "a model gives no names away"
    with made(tmp_path / "index", rows_of(drawn), tmp_path / "first") as catalogue:
        assert catalogue.calibration is not None
        assert catalogue.calibration.calibration.classes == KINDS - 12
    shutil.copytree(drawn, tmp_path / "labelled", ignore=shutil.ignore_patterns("noise.png"))
    for asked in (tmp_path / "index", tmp_path / "first"):
        assert package.calibrate(asked, tmp_path / "labelled").calibration.classes == KINDS - 12
    version = reembed(tmp_path / "index", package.load(tmp_path / "second")).version
    with open_catalogue(tmp_path / "index", version=version) as catalogue:
        assert catalogue.calibration is not None
        assert catalogue.calibration.calibration.classes == KINDS - 6


def test_calibrate_with_other_data(index: Path, drawn: Path, tmp_path: Path, tophit: Run) -> None:
    small = tmp_path / "small"
    made(small, rows_of(drawn, range(3)), saved_model(tmp_path / "model")).close()
    pictures = tmp_path / "labelled"
    for kind in range(10):
        shutil.copytree(drawn / f"kind {kind}", pictures / f"kind {kind}")
    done = tophit("calibrate", small, "--data", pictures, "--unknown", 0.5)
    assert "10 classes that training did not see" in done.stdout
    assert "50% unknown queries" in done.stdout
    assert "10 classes are few: chances are rough" in done.stdout
    with open_catalogue(small) as catalogue:
        assert catalogue.calibration is not None
        assert catalogue.calibration.per_class == EACH
    plain = json.loads(tophit("calibrate", index, "--json").stdout)
    assert isinstance(Calibration.from_json(plain), Calibration)
    with pytest.raises(UsageError, match="share of unknown queries is from 0"):
        tophit("calibrate", index, "--unknown", 1)
    with pytest.raises(UsageError, match="Name the data"):
        tophit("calibrate", tmp_path / "model")
    assert "10 classes" in tophit("calibrate", tmp_path / "model", "--data", pictures).stdout
    assert read_calibration(tmp_path / "model", package.load(tmp_path / "model").fingerprint()) is not None


def test_a_damaged_calibration_is_told(index: Path, tmp_path: Path) -> None:
    shutil.copytree(index, tmp_path / "index")
    path = tmp_path / "index" / "v1" / NAME
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "results": {"weights": [1]}}))
    with pytest.raises(TophitError, match=r"calibration\.json is damaged.*tophit calibrate"):
        open_catalogue(tmp_path / "index")
    path.write_text(json.dumps({**fields, "format": 99}))
    with pytest.raises(TophitError, match="another format"):
        open_catalogue(tmp_path / "index")
