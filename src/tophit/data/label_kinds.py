"""What a label is: one name, several names, or a path in a hierarchy. The name of its column says which.

A manifest has one of the columns ``label`` (one name, whatever characters it holds), ``labels`` (several, separated by
``;``) and ``label_path`` (from the coarsest level to the finest, separated by ``/``). So a label that only contains
such a character keeps its meaning.
"""

from collections.abc import Sequence
from typing import Any, Literal

from tophit.errors import TophitError

LabelKind = Literal["one", "several", "path"]
LABEL_COLUMNS: dict[LabelKind, str] = {"one": "label", "several": "labels", "path": "label_path"}
SEPARATORS = {"several": ";", "path": "/"}


def kind_of_columns(columns: Sequence[str]) -> LabelKind | None:
    """Return the kind of a table's labels by its columns; ``label`` comes first, None if there is no such column."""
    return next((kind for kind, column in LABEL_COLUMNS.items() if column in columns), None)


def read_names(value: Any, kind: LabelKind, where: str) -> tuple[str, ...]:
    """Return the names in a field ``labels`` or ``label_path``; nothing for one label. Parquet may hold real lists.

    Several labels are a set: they are sorted, each once.

    >>> read_names("shoe; red;shoe", "several", "row 1"), read_names("animal/bird/finch", "path", "row 1")
    (('red', 'shoe'), ('animal', 'bird', 'finch'))
    """
    if kind == "one":
        return ()
    parts = value if isinstance(value, list | tuple) else str(value).split(SEPARATORS[kind])
    names = [str(part).strip() for part in parts]
    if kind == "several":
        names = sorted({name for name in names if name})
    if not names or "" in names:
        wanted = "red;shoe;leather" if kind == "several" else "animal/bird/finch, without an empty level"
        raise TophitError(f"{where}: {LABEL_COLUMNS[kind]} is '{value}'; it must be like {wanted}.")
    return tuple(names)


def label_text(names: Sequence[str], kind: LabelKind) -> str:
    """Return several labels or a path as one text: what stands for the image where one label is shown or compared.

    >>> label_text(["animal", "bird"], "path")
    'animal/bird'
    """
    return SEPARATORS[kind].join(names)


def check_depths(paths: Sequence[tuple[str, ...]], where: Sequence[str]) -> None:
    """Raise unless all paths have the same number of levels, at least two; ``where`` says where each comes from."""
    for path, place in zip(paths, where, strict=True):
        if len(path) != len(paths[0]):
            raise TophitError(
                f"{place}: the path '{label_text(path, 'path')}' has {len(path)} levels, but "
                f"'{label_text(paths[0], 'path')}' ({where[0]}) has {len(paths[0])}; all must have the same number. "
                "Repeat the last name where a branch is shorter."
            )
    if paths and len(paths[0]) == 1:
        raise TophitError(
            f"{where[0]}: the path '{paths[0][0]}' has one level; write at least two, such as bird/finch, or name the "
            "column 'label'."
        )
