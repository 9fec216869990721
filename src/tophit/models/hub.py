"""Embedders on the Hugging Face Hub: ``hf:user/name``, or ``hf:user/name@revision``, with a model card of the run.

The server is ``HF_ENDPOINT`` where that is set. Tokens are found as ``huggingface_hub`` finds them.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tophit.errors import TophitError, UsageError
from tophit.files import write_text
from tophit.models.model_card import model_card
from tophit.models.weights import offline

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

PREFIX = "hf:"
T = TypeVar("T")


def push_embedder(embedder: "Embedder", name: str, *, private: bool = False, message: str | None = None) -> str:
    """Upload an embedder and its model card to a repository, which is made if there is none; return its address."""
    hub = _import_hub()
    name, _ = _parts(name)
    with tempfile.TemporaryDirectory(prefix="tophit-") as folder:
        embedder.save(folder)
        write_text(Path(folder) / "README.md", model_card(embedder, name))
        api = hub.HfApi(endpoint=_endpoint())

        def upload() -> str:
            api.create_repo(name, private=private, exist_ok=True)
            words = message or "An embedder made with Tophit"
            api.upload_folder(repo_id=name, folder_path=folder, commit_message=words)
            return f"{PREFIX}{name}"

        return _asked(upload, f"'{name}' can't be uploaded")


def download_embedder(name: str) -> Path:
    """Return the folder of an embedder on the hub, downloading it if it is not on this machine yet."""
    hub = _import_hub()
    repository, revision = _parts(name)
    wanted = ["embedder.json", "weights.safetensors", "text/*"]

    def download() -> Path:
        options: dict[str, Any] = {"local_files_only": offline(), "endpoint": _endpoint()}
        return Path(hub.snapshot_download(repository, revision=revision, allow_patterns=wanted, **options))

    return _asked(download, f"'{name}' can't be downloaded")


def _parts(name: str) -> tuple[str, str | None]:
    """Return the repository and the revision of ``hf:user/name@revision``."""
    repository, _, revision = name.removeprefix(PREFIX).partition("@")
    user, slash, rest = repository.partition("/")
    if not (user and slash and rest) or "/" in rest:
        raise UsageError(f"'{name}' is not a repository of the hub; write {PREFIX}USER/NAME.")
    return repository, revision or None


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _asked(ask: Callable[[], T], problem: str) -> T:
    """Return the hub's answer, without its progress bars; what goes wrong is said in a sentence."""
    from huggingface_hub import errors

    try:
        with _without_bars():
            return ask()
    except errors.LocalEntryNotFoundError as error:
        reason = "TOPHIT_OFFLINE is set, and it is not on this machine" if offline() else "the hub can't be reached"
        raise TophitError(f"{problem}: {reason}.") from error
    except errors.RepositoryNotFoundError as error:
        raise TophitError(
            f"{problem}: there is no such repository, or it is private and no token is known (hf auth login)."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise TophitError(f"{problem}: there is no such revision.") from error
    except (errors.HFValidationError, errors.HTTPError, OSError) as error:  # pyright: ignore[reportPrivateImportUsage]
        response = getattr(error, "response", None)
        if response is not None and response.status_code in (401, 403):
            raise TophitError(f"{problem}: the hub asks for a token that may write (hf auth login).") from error
        raise TophitError(f"{problem}: {str(error).partition(chr(10))[0]}") from error


@contextmanager
def _without_bars() -> Iterator[None]:
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    shown = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            enable_progress_bars()


def _import_hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UsageError("The Hugging Face Hub needs a package: pip install 'tophit[hub]'.") from error
    return huggingface_hub
