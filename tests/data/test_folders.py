from collections import Counter
from pathlib import Path

import pytest

from tophit.data.folders import (
    manifest_from_folder,
    manifest_from_query_gallery,
    open_data,
    open_images,
    part_of,
    whole_path,
)
from tophit.data.splits import hold_out_validation, split_classes
from tophit.errors import TophitError, UsageError
from tophit.recipe import make_recipe
from tophit.training.run import Run


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_class_folders_are_split_by_class(pictures: Path) -> None:
    manifest = manifest_from_folder(pictures, test_share=0.25, seed=3)
    assert len(manifest) == 48
    train, test = (set(manifest.where(split).labels) for split in ("train", "test"))
    assert len(test) == 2
    assert not train & test
    assert train | test == {f"class {i}" for i in range(8)}
    assert manifest_from_folder(pictures, 0.25, 3).rows == manifest.rows
    assert set(manifest_from_folder(pictures, 0.25, 4).where("test").labels) != test


def test_train_and_test_folders_keep_their_split(tmp_path: Path) -> None:
    touch(
        tmp_path / "train" / "a" / "1.jpg", tmp_path / "train" / "b" / "1.JPG", tmp_path / "test" / "c" / "x" / "1.png"
    )
    rows = manifest_from_folder(tmp_path).rows
    assert [(row.label, row.split) for row in rows] == [("c", "test"), ("a", "train"), ("b", "train")]


def test_query_and_gallery_folders_become_roles(tmp_path: Path) -> None:
    touch(
        tmp_path / "query" / "a" / "1.jpg", tmp_path / "gallery" / "a" / "2.jpg", tmp_path / "gallery" / "b" / "3.jpg"
    )
    expected = [("a", "query"), ("a", "gallery"), ("b", "gallery")]
    for manifest in (
        manifest_from_folder(tmp_path),
        manifest_from_query_gallery(tmp_path / "query", tmp_path / "gallery"),
    ):
        assert [(row.label, row.role) for row in manifest] == expected
        assert {row.split for row in manifest} == {"test"}


def test_other_files_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    touch(
        tmp_path / "a" / "1.jpg", tmp_path / "a" / "notes.txt", tmp_path / "a" / ".2.jpg", tmp_path / ".git" / "x.png"
    )
    assert [row.path.name for row in manifest_from_folder(tmp_path)] == ["1.jpg"]


def test_links_are_followed_and_hidden_folders_are_not(tmp_path: Path) -> None:
    photos, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    touch(photos / "a" / "1.jpg", photos / "a" / ".cache" / "2.jpg", photos / ".git" / "3.png", elsewhere / "4.jpg")
    (photos / "b").symlink_to(elsewhere)
    (photos / "a" / "back").symlink_to(photos)  # a circle
    (photos / "a" / "gone.jpg").symlink_to(tmp_path / "nothing")
    for manifest in (open_images(str(photos)), manifest_from_folder(photos)):
        assert [row.path.name for row in manifest] == ["1.jpg", "4.jpg"]
        assert "hidden images" in manifest.left_out
        assert "1 broken link" in manifest.left_out


def test_a_folder_to_index_may_have_any_layout(tmp_path: Path) -> None:
    touch(tmp_path / "1.jpg", tmp_path / "shoes" / "2.jpg", tmp_path / "shoes" / "red" / "3.jpg")
    assert [(row.path.name, row.label) for row in open_images(str(tmp_path))] == [
        ("1.jpg", ""),
        ("2.jpg", "shoes"),
        ("3.jpg", "red"),
    ]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(TophitError, match=r"no class folders with images; expected .*CLASS/NAME\.jpg"):
        manifest_from_folder(tmp_path)
    with pytest.raises(UsageError, match="There is no folder"):
        manifest_from_folder(tmp_path / "nothing")
    with pytest.raises(TophitError, match="has no images"):
        open_images(str(tmp_path))
    with pytest.raises(TophitError, match="expected a manifest"):
        open_data("nothing")
    touch(tmp_path / "a" / "1.jpg", tmp_path / "b" / "1.jpg")
    manifest = manifest_from_folder(tmp_path)
    with pytest.raises(TophitError, match="no images in the split 'validation'"):
        part_of(manifest, "validation")
    with pytest.raises(UsageError, match="train, validation, test or all, not 'tset'"):
        part_of(manifest, "tset")


@pytest.mark.parametrize(("share", "expected"), [(0, 0), (0.01, 1), (0.5, 5), (0.99, 9), (1, 10)])
def test_a_share_leaves_a_class_on_each_side_unless_it_is_all_or_nothing(share: float, expected: int) -> None:
    splits = split_classes([str(i) for i in range(10)], share, seed=0)
    assert Counter(splits.values())["test"] == expected


def test_validation_classes_come_out_of_training_and_only_once(pictures: Path) -> None:
    manifest = manifest_from_folder(pictures, 0.5)
    held = hold_out_validation(manifest, 0.25, seed=0)
    splits = {split: set(held.where(split).labels) for split in ("train", "validation", "test")}
    assert [len(splits[name]) for name in ("train", "validation", "test")] == [2, 2, 4]
    assert splits["test"] == set(manifest.where("test").labels)
    assert hold_out_validation(held, 0.5, seed=1).rows == held.rows
    assert hold_out_validation(manifest, 0, seed=0).rows == manifest.rows
    few = manifest_from_folder(pictures, 0.625)
    assert hold_out_validation(few, 0.25, seed=0).rows == few.rows  # three classes: none to spare


def test_data_is_named_so_that_it_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    assert whole_path("photos") == str(tmp_path / "photos")
    assert whole_path("cub200:photos") == f"cub200:{tmp_path / 'photos'}"
    assert whole_path("icons") == "icons"
    assert whole_path("missing.csv") == "missing.csv"
    run = Run(tmp_path / "run")
    run.begin(make_recipe({"data": {"manifest": "photos"}}))
    assert run.recipe().data.manifest == str(tmp_path / "photos")


def test_what_a_scan_leaves_out_is_told_by_count_and_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a/1.jpg", "a/2.heic", "b/1.png", "b/3.HEIC", "b/notes.txt", "README", "loose.jpg", ".hidden", "a/.x.jpg"]
    touch(*(tmp_path / name for name in names))
    monkeypatch.setattr("tophit.images.formats.has_heif", lambda: False)
    told = manifest_from_folder(tmp_path).left_out
    assert told.startswith(f"Left out of {tmp_path}: 2 .heic (install tophit[heif])")
    assert {"1 .txt", "1 without an ending", "1 image outside class folders"} <= set(told.rstrip(".").split(", "))
    assert ".hidden" not in told, "what is no image and hidden, nobody misses"
    assert "1 hidden image" in told
    everywhere = open_images(str(tmp_path))
    assert [row.path.name for row in everywhere] == ["1.jpg", "1.png", "loose.jpg"]
    assert "2 .heic (install tophit[heif])" in everywhere.left_out
    assert "outside" not in everywhere.left_out
    monkeypatch.setattr("tophit.images.formats.has_heif", lambda: True)
    assert len(manifest_from_folder(tmp_path)) == 4
    assert "heic" not in manifest_from_folder(tmp_path).left_out


def test_a_part_of_a_folder_and_its_validation_remember_what_was_left_out(tmp_path: Path) -> None:
    touch(
        *(tmp_path / f"{label}/{number}.jpg" for label in "abcdefghijkl" for number in (1, 2)), tmp_path / "a" / "x.md"
    )
    manifest = manifest_from_folder(tmp_path)
    assert manifest.left_out == f"Left out of {tmp_path}: 1 .md."
    assert hold_out_validation(manifest, 0.2, 0).where("train").left_out == manifest.left_out


def test_a_folder_whose_only_images_need_an_extra_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path / "a" / "1.heic")
    monkeypatch.setattr("tophit.images.formats.has_heif", lambda: False)
    for read in (manifest_from_folder, lambda folder: open_images(str(folder))):
        with pytest.raises(TophitError, match=r"1 \.heic \(install tophit\[heif\]\)"):
            read(tmp_path)
