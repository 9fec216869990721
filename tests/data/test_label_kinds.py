"""Labels that are lists, paths or judgements: how a manifest declares them, and what stays as it was."""

from pathlib import Path

import pytest

from tophit.data.check import check_manifest
from tophit.data.folders import open_data
from tophit.data.judgements import judgements_of, read_judgements
from tophit.data.levels import with_levels
from tophit.data.manifest import ImageRow, Manifest, read_manifest, write_manifest
from tophit.data.splits import hold_out_validation, merge_classes
from tophit.errors import TophitError, UsageError


def table(folder: Path, text: str) -> Path:
    (folder / "m.csv").write_text(text)
    return folder / "m.csv"


def test_a_column_labels_holds_several_names(tmp_path: Path) -> None:
    manifest = read_manifest(table(tmp_path, "path,labels\na.png,shoe; red;shoe\nb.png,hat\n"))
    assert manifest.kind == "several"
    assert [row.names for row in manifest] == [("red", "shoe"), ("hat",)]
    assert manifest.labels == ["red;shoe", "hat"]


def test_a_column_label_path_holds_the_levels_of_a_hierarchy(tmp_path: Path) -> None:
    manifest = read_manifest(table(tmp_path, "path,label_path\na.png,animal/bird/finch\nb.png,animal/fish/eel\n"))
    assert manifest.kind == "path"
    assert manifest.rows[0].names == ("animal", "bird", "finch")
    assert manifest.labels == ["animal/bird/finch", "animal/fish/eel"]


def test_a_label_with_separators_in_it_stays_one_label_and_other_columns_stay_metadata(tmp_path: Path) -> None:
    manifest = read_manifest(table(tmp_path, "path,label,labels,label_path\na.png,red;shoe/x,p;q,r/s\n"))
    row = manifest.rows[0]
    assert (row.kind, row.label, row.names) == ("one", "red;shoe/x", ())
    assert row.metadata == {"labels": "p;q", "label_path": "r/s"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("kind", "names"), [("several", ("a", "b")), ("path", ("x", "y"))])
def test_lists_and_paths_come_back_as_they_were_written(tmp_path: Path, suffix: str, kind, names) -> None:
    label = ";".join(names) if kind == "several" else "/".join(names)
    rows = (ImageRow(tmp_path / "a.png", label, "train", metadata={"colour": "red"}, kind=kind, names=names),)
    write_manifest(Manifest(rows), tmp_path / f"m.{suffix}")
    assert read_manifest(tmp_path / f"m.{suffix}").rows == rows


def test_parquet_may_hold_real_lists(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"path": ["a.png"], "labels": [["shoe", "red; dark"]]}), tmp_path / "m.parquet")
    assert read_manifest(tmp_path / "m.parquet").rows[0].names == ("red; dark", "shoe")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,labels\na,;\n", "row 1: labels is ';'; it must be like red;shoe"),
        ("path,label_path\na,x//y\n", "row 1: label_path is 'x//y'.*without an empty level"),
        ("path,label_path\na,x/y\nb,x/y/z\n", "row 2: the path 'x/y/z' has 3 levels, but 'x/y'"),
        ("path,label_path\na,x\n", "'x' has one level.*name the column 'label'"),
        ("path,labels\na,\n", "path and labels must not be empty"),
    ],
)
def test_what_is_wrong_is_said_with_its_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TophitError, match=message):
        read_manifest(table(tmp_path, text))


def test_columns_above_the_label_make_it_a_path(tmp_path: Path) -> None:
    path = table(tmp_path, "path,label,order,family\na.png,robin,birds,finches\nb.png,eel,fish,eels\n")
    manifest = open_data(str(path), levels=["order", "family"])
    assert [row.names for row in manifest] == [("birds", "finches", "robin"), ("fish", "eels", "eel")]
    assert manifest.rows[0].metadata == {"order": "birds", "family": "finches"}
    with pytest.raises(UsageError, match="no column 'genus'; its columns: order, family"):
        open_data(str(path), levels=["genus"])
    with pytest.raises(UsageError, match=r"already paths \(the column label_path\)"):
        with_levels(manifest, ["order"])


def test_a_name_with_the_separator_can_not_be_written_to_a_manifest(tmp_path: Path) -> None:
    row = ImageRow(tmp_path / "a.png", "Ram/C/V van", kind="path", names=("Ram", "C/V van"))
    with pytest.raises(UsageError, match="holds '/', which separates names"):
        write_manifest(Manifest((row,)), tmp_path / "m.csv")


def several(count: int) -> Manifest:
    rows = (ImageRow(Path(f"{i}.png"), "x;y", "train", kind="several", names=("x", "y")) for i in range(count))
    return Manifest(tuple(rows))


def test_images_with_several_labels_are_held_out_one_by_one_since_they_share_labels() -> None:
    folds = [hold_out_validation(several(20), 0.2, seed=1, fold=fold) for fold in (0, 1)]
    held = [{row.path.name for row in each if row.split == "validation"} for each in folds]
    assert [len(each) for each in held] == [4, 4]
    assert not held[0] & held[1]
    assert {row.names for row in folds[0]} == {("x", "y")}


def test_merging_classes_is_for_one_label() -> None:
    with pytest.raises(UsageError, match="merge_classes"):
        merge_classes(several(4), 2)


def test_a_check_counts_single_labels_not_combinations(tmp_path: Path) -> None:
    manifest = read_manifest(table(tmp_path, "path,labels,split\na.png,x;y,train\nb.png,x;z,train\nc.png,y;z,test\n"))
    assert {problem.kind for problem in check_manifest(manifest)} == {"unreadable"}


def test_judgements_are_read_from_a_qrels_file(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("a.png 0 b.png 2\n\na.png Q0 c.png -1\n")
    assert read_judgements(tmp_path / "q.txt") == [("a.png", "b.png", 2.0), ("a.png", "c.png", 0.0)]
    manifest = read_manifest(table(tmp_path, "path,label\na.png,1\nb.png,1\nc.png,2\n"))
    assert len(judgements_of(manifest, tmp_path / "q.txt")) == 2
    with_ids = read_manifest(table(tmp_path, "path,label,id\na.png,1,first\nb.png,1,second\n"))
    with pytest.raises(TophitError, match=r"'a\.png' is none of the 2 images.*like 'first'"):
        judgements_of(with_ids, tmp_path / "q.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.png b.png 2\n", "line 1: expected four fields"),
        ("a 0 b 1\na 0 b much\n", "line 2: the grade must be a number, not 'much'"),
        ("a 0 b inf\n", "the grade must be a number"),
        ("\n", "has no judgements"),
    ],
)
def test_wrong_judgements_are_said_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises(TophitError, match=message):
        read_judgements(tmp_path / "q.txt")
