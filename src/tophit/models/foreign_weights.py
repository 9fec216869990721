"""Weight files of Caffe (``.caffemodel``) and of TensorFlow.js (``model.json`` with its parts), read without either.

Only tensors are read, under the names of the file: ``conv1/7x7_s2.weight`` and ``.bias`` from Caffe, ``conv1/kernel``
from TensorFlow.js. A backbone's ``from_file`` turns them into its own.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Fields of Caffe's messages (caffe.proto): layers were field 2 of a net until 2014, field 100 since.
_LAYER_FIELDS: dict[int, tuple[int, int]] = {2: (4, 6), 100: (1, 7)}  # a layer's name and its blobs
_BLOB_SIDES, _BLOB_DATA, _BLOB_SHAPE = (1, 2, 3, 4), 5, 7
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # how protocol buffers write a value


def read_caffe(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights and biases of every layer: ``LAYER.weight`` and ``LAYER.bias``.

    Raises ``ValueError`` if the file is not a Caffe net.
    """
    state: dict[str, torch.Tensor] = {}
    for number, layer in _fields(memoryview(path.read_bytes())):
        if number not in _LAYER_FIELDS or not isinstance(layer, memoryview):
            continue
        name_field, blob_field = _LAYER_FIELDS[number]
        inside = list(_fields(layer))
        name = next((bytes(value).decode() for field, value in inside if field == name_field), "")
        blobs = [_blob(value) for field, value in inside if field == blob_field]
        if len(blobs) > 2:
            raise ValueError(f"the layer {name} has {len(blobs)} blobs, not a weight and a bias")
        for part, blob in zip(("weight", "bias"), blobs, strict=False):
            state[f"{name}.{part}"] = blob.reshape(-1) if part == "bias" else blob
    if not state:
        raise ValueError("it holds no layers with weights")
    return state


def _blob(message: Any) -> torch.Tensor:
    sides: dict[int, int] = {}
    shape: list[int] = []
    data: list[np.ndarray] = []
    for number, value in _fields(message):
        if number in _BLOB_SIDES:
            sides[number] = value
        elif number == _BLOB_DATA:
            data.append(np.frombuffer(value, "<f4"))
        elif number == _BLOB_SHAPE:
            shape = [side for _, packed in _fields(value) for side in _varints(packed)]
    values = np.concatenate(data) if data else np.zeros(0, np.float32)
    shape = shape or [sides.get(number, 1) for number in _BLOB_SIDES]
    if math.prod(shape) != len(values):
        raise ValueError(f"a blob of shape {shape} has {len(values)} values")
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer's message: their numbers, and an integer or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES, _BYTES):
            length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind)
            if length is None:
                length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            raise ValueError(f"it is not a protocol buffer: a field of kind {kind}")
        if at > len(message):
            raise ValueError("it is cut off")
        yield number, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the integer that begins at a byte, seven bits a byte, and where the next value begins."""
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError("it is not a protocol buffer, or cut off")
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _varints(packed: Any) -> Iterator[int]:
    if isinstance(packed, int):  # not packed: one number a field
        yield packed
        return
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def read_tensorflow_js(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a ``model.json``, whose parts lie beside it.

    Raises ``ValueError`` if the file names no weights or a part is missing or too short.
    """
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))["weightsManifest"]
    except (KeyError, TypeError, UnicodeDecodeError):
        raise ValueError("it is no model.json of TensorFlow.js: it names no weights") from None
    state: dict[str, torch.Tensor] = {}
    for group in groups:
        parts = [path.parent / name for name in group["paths"]]
        missing = next((part for part in parts if not part.is_file()), None)
        if missing is not None:
            raise ValueError(f"its part {missing.name} is missing")
        data, at = b"".join(part.read_bytes() for part in parts), 0
        for weight in group["weights"]:
            count = math.prod(weight["shape"])
            if weight.get("dtype", "float32") != "float32" or "quantization" in weight:
                raise ValueError(f"{weight['name']} is not stored as float32")
            if at + 4 * count > len(data):
                raise ValueError(f"its parts end before {weight['name']}")
            values = np.frombuffer(data, "<f4", count, at).astype(np.float32)
            state[weight["name"]] = torch.from_numpy(values).reshape(weight["shape"])
            at += 4 * count
    return state
