from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tophit.data.manifest import ImageRow, Manifest, read_manifest, write_manifest
from tophit.errors import TophitError, UsageError


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path, suffix: str) -> None:
    rows = (
        ImageRow(tmp_path / "a b" / "猫.jpg", "007", "train", "both", (0.0, 1.5, 10.0, 20.0), {"colour": "red"}),
        ImageRow(Path("/elsewhere/b.png"), "x, y", "test", "query", None, {"colour": ""}),
        ImageRow(tmp_path / "c.png", '"quoted"', "validation", "gallery", None, {"colour": "blue\ngreen"}),
    )
    path = tmp_path / f"manifest.{suffix}"
    write_manifest(Manifest(rows), path)
    assert read_manifest(path).rows == rows


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, max_size=5)
)
def test_any_label_survives_csv(tmp_path: Path, labels: list[str]) -> None:
    manifest = Manifest(tuple(ImageRow(tmp_path / f"{i}.png", label) for i, label in enumerate(labels)))
    write_manifest(manifest, tmp_path / "m.csv")
    assert read_manifest(tmp_path / "m.csv").labels == labels


def test_images_below_the_manifest_get_relative_paths_so_that_the_folder_can_move(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    write_manifest(Manifest((ImageRow(tmp_path / "old" / "images" / "a.png", "x"),)), tmp_path / "old" / "m.csv")
    (tmp_path / "old").rename(tmp_path / "new")
    assert read_manifest(tmp_path / "new" / "m.csv").rows[0].path == tmp_path / "new" / "images" / "a.png"


def test_a_part_of_a_manifest_knows_its_rows_numbers(tmp_path: Path) -> None:
    splits = ["test", "train", "test", "train"]
    manifest = Manifest(tuple(ImageRow(tmp_path / f"{i}.png", "x", split) for i, split in enumerate(splits)))
    assert [manifest.where("train").number(i) for i in range(2)] == [2, 4]
    assert manifest.number(2) == 3


def test_a_spreadsheets_byte_order_mark_and_missing_optional_columns_are_fine(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_bytes(b"\xef\xbb\xbfpath,label\r\na.png,1\r\n")
    row = read_manifest(tmp_path / "m.csv").rows[0]
    assert (row.label, row.split, row.role, row.box) == ("1", "test", "both", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na,b\n", "no column 'path'; it has file, label"),
        ("path,label\n", "has no rows"),
        ("", "no column 'path' and no column 'label'; it has no columns"),
        ("path;label\na;b\n", "separated by commas"),
        ("path,label,split\na,b,trian\n", "row 1: split is 'trian'.*Did you mean 'train'"),
        ("path,label,role\na,b,x\na,b,quary\n", "row 1: role is 'x'; it must be one of query, gallery, both"),
        ("path,label\na,\n", "row 1: path and label must not be empty"),
        ("path,label,x1,y1,x2,y2\na,b,1,2,3,\n", "row 1: the box needs four numbers"),
        ("path,label,x1,y1,x2,y2\na,b,5,2,3,4\n", "row 1: the box .* must have 0 <= x1 < x2"),
        ("path,label\na,b,c\n", "row 1: expected 2 fields"),
    ],
)
def test_a_wrong_manifest_is_refused_with_the_row_and_what_would_be_right(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(TophitError, match=message):
        read_manifest(tmp_path / "m.csv")


def test_files_that_are_no_manifest_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m.parquet").write_text("path,label")
    with pytest.raises(TophitError, match="not a Parquet file"):
        read_manifest(tmp_path / "m.parquet")
    with pytest.raises(TophitError, match="There is no manifest"):
        read_manifest(tmp_path / "nothing.csv")
    (tmp_path / "latin.csv").write_bytes("path,label\nä.png,ö\n".encode("latin-1"))
    with pytest.raises(TophitError, match="UTF-8"):
        read_manifest(tmp_path / "latin.csv")
    with pytest.raises(UsageError, match=r"\.csv or \.parquet"):
        write_manifest(Manifest((ImageRow(tmp_path / "a", "b"),)), tmp_path / "m.xls")
