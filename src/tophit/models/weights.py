"""Weights of backbones: read from a file, or downloaded once from where they are published and checked.

Nothing is downloaded but by https, and nothing is kept whose whole SHA-256 is not known beforehand. Where a publisher
states only some of its digits, or has no https, the user downloads the file; then the digits there are are checked.
"""

import hashlib
import http.client
import os
import pickle
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import load_file

from tophit.errors import TophitError
from tophit.files import cache_folder, check_plain_file, replace_file
from tophit.models.foreign_weights import read_caffe, read_tensorflow_js
from tophit.progress import Progress, TerminalView

State = dict[str, torch.Tensor]
_BLOCK = 1 << 20
_TIMEOUT = 30.0  # seconds without receiving a byte
_SHA256_DIGITS = 64


@dataclass(frozen=True)
class PublishedFile:
    """A file of weights on the web. ``digest`` is its SHA-256, or what the publisher states of one."""

    url: str
    digest: str
    algorithm: Literal["sha256", "sha1"] = "sha256"

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def can_be_checked(self) -> bool:
        """Whether it may be downloaded: by https, with its whole SHA-256 known."""
        return self.url.startswith("https://") and self.algorithm == "sha256" and len(self.digest) == _SHA256_DIGITS

    @property
    def path(self) -> Path:
        """Where the file is kept, and where a user without network access must put it."""
        return cache_folder() / "weights" / self.name

    def read(self) -> State:
        """Return the tensors, downloading the file if it is not there yet."""
        bar = TerminalView(Console(stderr=True)).track(f"Downloading {self.name}")  # silent unless on a terminal
        return read_weights(str(fetch(self, bar)))


def read_weights(path: str) -> State:
    """Read tensors from a file of safetensors, Caffe or TensorFlow.js, or of PyTorch without unpickling anything else.

    A PyTorch file may have any name; the others end with ``.safetensors``, ``.caffemodel`` and ``.json``.
    """
    try:
        check_plain_file(path)
        if path.endswith(".safetensors"):
            return load_file(path)
        if path.endswith(".caffemodel"):
            return read_caffe(Path(path))
        if path.endswith(".json"):
            return read_tensorflow_js(Path(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle protocols: a file that can't be loaded raises
            return _only_tensors(torch.load(path, map_location="cpu", weights_only=True))
    except FileNotFoundError:
        raise TophitError(f"There is no weights file '{path}'.") from None
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise TophitError(
            f"'{path}' does not hold plain tensors (safetensors, a PyTorch state dict, a Caffe net, or a model.json of "
            f"TensorFlow.js): {error}"
        ) from error


def _only_tensors(content: Any) -> State:
    """Return a state dict, unwrapping one saved by a training script as ``{"state_dict": ...}``."""
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise ValueError("expected names and tensors")
    return {name.removeprefix("module."): value for name, value in content.items()}


def fetch(file: PublishedFile, progress: Progress | None = None) -> Path:
    """Return the path of a published file, downloading it if needed; only a file with the right digest is kept.

    An interrupted download leaves nothing behind.
    """
    path = file.path
    if path.is_file():
        _check(path, file)
        return path
    if offline():
        raise TophitError(_how_to_help(file, "TOPHIT_OFFLINE is set"))
    if not file.can_be_checked:
        raise TophitError(
            _how_to_help(file, "Tophit downloads only by https, and only what it knows the whole SHA-256 of")
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replace_file(path) as temporary:
            _download(file, temporary, progress)
            _check(temporary, file)
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise TophitError(_how_to_help(file, f"the download failed: {getattr(error, 'reason', error)}")) from error
    return path


def offline() -> bool:
    """Return whether downloads are turned off: ``TOPHIT_OFFLINE=1``."""
    return os.environ.get("TOPHIT_OFFLINE", "0") not in ("", "0")


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only to https."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Refuse another scheme."""
        if not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it was redirected to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_OnlyHttps)


def _download(file: PublishedFile, path: Path, progress: Progress | None) -> None:
    with _OPENER.open(file.url, timeout=_TIMEOUT) as answer, path.open("wb") as out:
        expected = int(answer.headers.get("Content-Length") or 0)

        def blocks() -> Iterator[bytes]:
            while block := answer.read(_BLOCK):
                yield block

        for block in progress(blocks(), -(-expected // _BLOCK)) if progress else blocks():
            out.write(block)
        if expected and out.tell() != expected:
            raise ConnectionError(f"only {out.tell():,} of {expected:,} bytes arrived")


def _check(path: Path, file: PublishedFile) -> None:
    with path.open("rb") as content:
        found = hashlib.file_digest(content, file.algorithm).hexdigest()
    if not found.startswith(file.digest):
        where = f"{path} is not the published file" if path == file.path else f"{file.url} returned a different file"
        name = {"sha256": "SHA-256", "sha1": "SHA-1"}[file.algorithm]
        raise TophitError(f"{where}: its {name} starts with {found[: len(file.digest)]}, not with {file.digest}.")


def _how_to_help(file: PublishedFile, reason: str) -> str:
    return (
        f"The weights {file.name} are not on this machine ({reason}): download {file.url} and save it as {file.path}, "
        "or set embedder.weights to a file you have."
    )
