"""What every backend gets is checked and prepared here, once: vectors, ids, metadata."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tophit.errors import TophitError, UsageError

MOST_ID_BYTES = 1024
MOST_METADATA_BYTES = 65_536
_SMALLEST_NORM = 1e-12
_FLOAT32 = np.dtype(np.float32)
_INT64 = 2**63


def unit_vectors(vectors: Any, dim: int, what: str = "vector") -> np.ndarray:
    """Return vectors (N, dim), or one (dim,), as float32 of unit length (N, dim); refuse zero vectors."""
    if _is_ready(vectors, dim):
        return vectors
    try:
        array = np.atleast_2d(np.asarray(vectors, np.float64))
    except (TypeError, ValueError) as error:
        raise UsageError(f"Expected {what}s as an array (N, {dim}) of numbers: {error}") from error
    if array.ndim != 2:
        raise UsageError(f"Expected {what}s of shape (N, {dim}), not {array.shape}.")
    if array.shape[1] != dim:
        raise TophitError(f"The index holds vectors of {dim} numbers, the {what} has {array.shape[1]}.")
    largest = np.abs(array).max(axis=1, initial=0.0, keepdims=True)
    if not np.isfinite(largest).all():
        raise UsageError(f"{what.capitalize()} {_first(~np.isfinite(largest))} holds infinity or not-a-number.")
    if (largest < _SMALLEST_NORM).any():
        raise UsageError(f"{what.capitalize()} {_first(largest < _SMALLEST_NORM)} is zero, which has no direction.")
    scaled = array / largest  # so that squares neither overflow nor vanish
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    # What is unit length already stays as it is, to the last bit: vectors read from an index can be written again.
    is_unit = np.abs(largest - 1 / lengths) < 1e-6
    return np.ascontiguousarray(np.where(is_unit, array, scaled / lengths), np.float32)


def _is_ready(vectors: Any, dim: int) -> bool:
    """Return whether vectors are unit length already, as embedders return them: a search takes only microseconds."""
    if not isinstance(vectors, np.ndarray) or vectors.dtype != _FLOAT32 or not vectors.flags.c_contiguous:
        return False
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        return False
    if len(vectors) == 1:  # half of the time
        one = vectors[0]
        return abs(float(one.dot(one)) - 1) < 1e-6
    squares = np.vecdot(vectors, vectors)
    return bool((np.abs(squares - 1) < 1e-6).all())  # not-a-number compares as false


def check_ids(ids: Sequence[str]) -> list[str]:
    """Return ids as a list; each must be a string of 1 to 1024 bytes."""
    if isinstance(ids, str):
        raise UsageError(f"Expected a list of ids, not the string {ids!r}.")
    ids = list(ids)
    for one in ids:
        if not isinstance(one, str) or not one:
            raise UsageError(f"An id is a string that is not empty, not {one!r}.")
        if len(_utf8(one, "The id")) > MOST_ID_BYTES:
            raise UsageError(f"An id has at most {MOST_ID_BYTES} bytes, not {len(one.encode())}: {one[:60]}...")
        if "\0" in one:
            raise UsageError(f"An id can't hold the character NUL: {one!r}.")
    return ids


def check_metadata(metadata: Sequence[Mapping[str, Any]] | None, count: int) -> list[dict[str, Any]]:
    """Return one JSON object per item, as it will be read back; without metadata an empty one."""
    if metadata is None:
        return [{} for _ in range(count)]
    if isinstance(metadata, Mapping) or len(metadata) != count:
        raise UsageError(f"Expected a list of {count} metadata mappings, one per id.")
    return [_plain(one, number) for number, one in enumerate(metadata)]


def last_of_each(ids: Sequence[str]) -> list[int]:
    """Return the place of each different id's last occurrence, in the order of the places."""
    return sorted({one: place for place, one in enumerate(ids)}.values())


def _plain(one: Mapping[str, Any], number: int) -> dict[str, Any]:
    if not isinstance(one, Mapping):
        raise UsageError(f"metadata[{number}] is {one!r}; expected a mapping.")
    for name, value in one.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"metadata[{number}]: a field's name is a string that is not empty, not {name!r}.")
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise UsageError(f"metadata[{number}].{name}: {value} needs more than 64 bits; give it as a string.")
    try:
        text = json.dumps(dict(one), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"metadata[{number}] is not JSON: {error}") from error
    size = len(_utf8(text, f"metadata[{number}]"))
    if size > MOST_METADATA_BYTES:
        raise UsageError(f"metadata[{number}] has {size} bytes as JSON; at most {MOST_METADATA_BYTES} are allowed.")
    if "\\u0000" in text:
        raise UsageError(f"metadata[{number}] can't hold the character NUL.")
    return json.loads(text)


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is not valid text: {error}") from error


def _first(wrong: np.ndarray) -> int:
    return int(np.flatnonzero(wrong)[0])
