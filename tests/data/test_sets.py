"""Benchmark sets from tiny trees in the archives' own layouts."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.reference import set_trees

from tophit.data.folders import open_data
from tophit.data.levels import with_levels
from tophit.data.manifest import Manifest, read_manifest, write_manifest
from tophit.data.sets import benchmark, read_set, set_named
from tophit.data.sets.benchmark import Count
from tophit.errors import TophitError, UsageError
from tophit.images.decode import read_image

EVERY_TREE = [*set_trees.TREES.items(), ("cars196", set_trees.cars196_devkit)]


def whole(monkeypatch: pytest.MonkeyPatch, name: str, *counts: Count) -> None:
    """Let a tiny tree count as the whole set."""
    known = set_named(name)
    monkeypatch.setattr(benchmark, "set_named", lambda asked: replace(known, counts=counts))


@pytest.mark.parametrize(("name", "build"), EVERY_TREE)
def test_every_set_is_read_from_its_own_layout(
    name: str, build: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "archive" / "set", per_class=4, classes=3)
    whole(monkeypatch, name, Count("train", 3, 12))
    manifest = read_set(name, tmp_path / "archive")  # one level above, as many archives unpack
    train, test = manifest.where("train"), manifest.where("test")
    assert (len(train), len(set(train.labels))) == (12, 3)
    assert len(test) == 4 * len(set(test.labels))
    assert not set(train.labels) & set(test.labels)
    assert all(row.path.is_file() and row.box is None for row in manifest)
    assert read_set(name, tmp_path / "archive" / "set").rows == manifest.rows


@pytest.mark.parametrize(("name", "build"), [pair for pair in EVERY_TREE if set_named(pair[0]).boxes])
def test_boxes_hold_the_same_pixels_whatever_the_set_counts_from(
    name: str, build: Callable[..., Path], tmp_path: Path
) -> None:
    build(tmp_path)
    row = read_set(name, tmp_path, partial=True, boxes=True).rows[0]
    assert row.box == (10.0, 5.0, 40.0, 45.0)
    assert read_image(row.path, row.box).size == (30, 40)


def test_labels_and_metadata_are_those_of_the_archives(tmp_path: Path) -> None:
    def first(name: str, split: str = "train"):
        return read_set(name, set_trees.TREES[name](tmp_path / name), partial=True).where(split).rows[0]

    assert first("cub200").label == "001.Bird_1"
    assert first("cub200", "test").label == "101.Bird_101"
    assert first("cars196").label == "001 Car 1 Sedan 2012"
    assert first("cars196", "test").label == "099 Car 99 Sedan 2012"
    assert (first("sop").label, first("sop").metadata) == ("1", {"super_class": "coffee_maker"})
    assert first("vehicleid", "test").metadata == {"test_sets": "small medium large"}
    assert first("inaturalist").metadata == {"species": "Species 0", "super_class": "Plantae"}
    assert first("inshop").label == "id_00000000"
    roles = [row.role for row in read_set("inshop", tmp_path / "inshop", partial=True).where("test")]
    assert roles == ["query", "gallery"] * (len(roles) // 2)


def test_hierarchies_come_from_the_sets_own_files(tmp_path: Path) -> None:
    """Of each set: the columns above the label, as its archive has them; a label without a value stands alone."""

    def paths(name: str, *levels: str) -> set[tuple[str, ...]]:
        rows = with_levels(read_set(name, tmp_path / name, partial=True), levels).where("train")
        return {row.names for row in rows}

    for name, build in set_trees.TREES.items():
        build(tmp_path / name, classes=2)
    classes = tmp_path / "cub200" / "classes.txt"
    named = classes.read_text().replace("Bird_1\n", "Sooty_Albatross\n").replace("Bird_2\n", "Mallard\n")
    classes.write_text(named)
    assert paths("cub200", "family") == {("Albatross", "001.Sooty_Albatross"), ("Mallard", "002.Mallard")}

    set_trees.lines(tmp_path / "vehicleid" / "attribute" / "model_attr.txt", ["10000 7"])
    assert paths("vehicleid", "model") == {("7", "10000"), ("no model: 10001", "10001")}

    ranks = [{"id": kind, "name": f"Corvus {kind}", "order": "Passeriformes", "genus": "Corvus"} for kind in range(4)]
    (tmp_path / "inaturalist" / "categories.json").write_text(json.dumps(ranks))
    assert paths("inaturalist", "order", "genus") == {
        ("Passeriformes", "Corvus", "0"),
        ("Passeriformes", "Corvus", "1"),
    }
    (tmp_path / "inaturalist" / "categories.json").write_text("[1]")
    with pytest.raises(TophitError, match=r"categories\.json does not hold iNaturalist's categories"):
        paths("inaturalist", "order")

    assert paths("sop", "super_class") == {("coffee_maker", "1"), ("bicycle", "2")}
    with pytest.raises(UsageError, match="has no column 'genus'; its columns: super_class"):
        paths("sop", "genus")


def test_cars_have_makers_of_one_and_of_two_words(tmp_path: Path) -> None:
    set_trees.cars196(tmp_path, names={1: "AM General Hummer SUV 2000", 2: "Ram C/V Cargo Van Minivan 2012"})
    rows = with_levels(read_set("cars196", tmp_path, partial=True), ["maker"]).where("train")
    assert {row.names for row in rows} == {
        ("AM General", "001 AM General Hummer SUV 2000"),
        ("Ram", "002 Ram C-V Cargo Van Minivan 2012"),
        ("Car", "003 Car 3 Sedan 2012"),
        ("Car", "004 Car 4 Sedan 2012"),
    }
    write_manifest(Manifest(rows.rows), tmp_path / "cars.csv")
    assert {row.names for row in read_manifest(tmp_path / "cars.csv")} == {row.names for row in rows}


def test_published_counts_are_those_of_the_papers() -> None:
    def sums(name: str, *parts: str) -> tuple[int, int]:
        chosen = [count for count in set_named(name).counts if count.part in parts]
        return sum(count.classes for count in chosen), sum(count.images for count in chosen)

    assert sums("cub200", "train", "test") == (200, 11_788)
    assert sums("cars196", "train", "test") == (196, 16_185)
    assert sums("sop", "train", "test") == (22_634, 120_053)
    assert sums("inaturalist", "train", "test") == (8_142, 461_939)
    assert sums("inshop", "train", "query", "gallery")[1] == 52_712
    assert sums("inshop", "train", "query")[0] == 7_982


def test_other_counts_than_published_stop_or_go_on_partially(tmp_path: Path) -> None:
    set_trees.cub200(tmp_path)
    message = r"CUB-200-2011 in .* train: 4 classes, 16 images; published: 100 classes, 5,864 images.*--partial"
    with pytest.raises(TophitError, match=message):
        read_set("cub200", tmp_path)
    assert len(read_set("cub200", tmp_path, partial=True)) == 32


def test_missing_images_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    set_trees.sop(tmp_path)
    missing = tmp_path / "coffee_maker_final" / "111001_2.JPG"
    missing.unlink()
    with pytest.raises(TophitError, match=r"1 of 32 images are missing.*111001_2\.JPG.*Stanford_Online_Products\.zip"):
        read_set("sop", tmp_path)
    assert missing not in [row.path for row in read_set("sop", tmp_path, partial=True)]
    for path in tmp_path.rglob("*.JPG"):
        path.unlink()
    with pytest.raises(TophitError, match="32 of 32 images are missing"):
        read_set("sop", tmp_path, partial=True)


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("cub200", "images.txt", r"CUB-200-2011: there is no .*images\.txt.*It is in CUB_200_2011\.tgz"),
        ("cub200", "classes.txt", r"Missing: .*classes\.txt\. It is in CUB_200_2011\.tgz"),
        ("cars196", "cars_annos.mat", r"Cars196: there is no .*cars_annos\.mat or .*devkit"),
        ("sop", "Ebay_test.txt", r"Missing: .*Ebay_test\.txt"),
        ("vehicleid", "train_test_split/test_list_1600.txt", r"Missing: .*test_list_1600\.txt.*VehicleID_V1\.0\.zip"),
        ("inaturalist", "val2018.json", r"Missing: .*val2018\.json\. It is in val2018\.json\.tar\.gz"),
        (
            "inaturalist",
            "Inat_dataset_splits/Inaturalist_test_set1.txt",
            r"Missing: .*Inaturalist_test_set1\.txt\. It is in .*Smooth-AP",
        ),
        ("inshop", "Eval/list_eval_partition.txt", r"In-Shop: there is no .*list_eval_partition\.txt"),
    ],
)
def test_a_missing_file_is_named_with_its_place_and_archive(name: str, file: str, message: str, tmp_path: Path) -> None:
    set_trees.TREES[name](tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(TophitError, match=message):
        read_set(name, tmp_path)


def test_files_that_are_not_what_they_should_be_are_refused(tmp_path: Path) -> None:
    set_trees.cub200(tmp_path / "cub")
    (tmp_path / "cub" / "images.txt").write_text("1\n")
    with pytest.raises(TophitError, match=r"images\.txt, line 1: expected 2 fields"):
        read_set("cub200", tmp_path / "cub")
    set_trees.cars196(tmp_path / "cars")
    (tmp_path / "cars" / "cars_annos.mat").write_bytes(b"not MATLAB")
    with pytest.raises(TophitError, match=r"cars_annos\.mat can't be read as a MATLAB file"):
        read_set("cars196", tmp_path / "cars")
    set_trees.inshop(tmp_path / "shop")
    listed = tmp_path / "shop" / "Eval" / "list_eval_partition.txt"
    listed.write_text(listed.read_text().rsplit("img/", 1)[0])
    with pytest.raises(TophitError, match="says 32 images, but it lists 31; it is incomplete"):
        read_set("inshop", tmp_path / "shop")
    set_trees.inaturalist(tmp_path / "inat")
    (tmp_path / "inat" / "train2018.json").write_text("[]")
    with pytest.raises(TophitError, match=r"train2018\.json does not hold iNaturalist's annotations"):
        read_set("inaturalist", tmp_path / "inat")


def test_the_devkits_test_file_without_classes_is_explained(tmp_path: Path) -> None:
    from scipy.io import savemat

    set_trees.cars196_devkit(tmp_path)
    rows = [{**set_trees._car_box(), "fname": "00001.jpg"}] * 2
    savemat(tmp_path / "cars_test_annos_withlabels.mat", {"annotations": set_trees._mat_annotations(rows)})
    with pytest.raises(TophitError, match=r"have no class\. The devkit's own cars_test_annos\.mat has no classes"):
        read_set("cars196", tmp_path)


def test_wrong_use_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no benchmark set 'cub'\. Did you mean 'cub200'"):
        read_set("cub", tmp_path)
    with pytest.raises(UsageError, match="There is no folder"):
        read_set("cub200", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="Stanford Online Products has no boxes"):
        read_set("sop", set_trees.sop(tmp_path), boxes=True)


def test_a_set_is_named_with_its_folder_wherever_data_is_asked_for(tmp_path: Path) -> None:
    set_trees.cub200(tmp_path / "birds: all")
    with pytest.raises(TophitError, match="is not complete"):
        open_data(f"cub200:{tmp_path / 'birds: all'}")
    assert len(open_data(str(tmp_path / "birds: all"), set_name="cub200", partial=True)) == 32


def test_the_command_writes_a_manifest_with_both_counts(
    tophit: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    set_trees.inshop(tmp_path / "shop")
    refused = tophit("data", "inshop", "--root", tmp_path / "shop", "--out", tmp_path / "shop.csv", check=1)
    assert "In-Shop in" in refused.stderr
    done = tophit("data", "inshop", "--root", tmp_path / "shop", "--out", tmp_path / "shop.csv", "--partial", "--boxes")
    assert "14,218" in done.stdout
    manifest = read_manifest(tmp_path / "shop.csv")
    assert manifest.where("test").rows[1].role == "gallery"
    assert manifest.rows[0].box == (10.0, 5.0, 40.0, 45.0)
