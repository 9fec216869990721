"""Which classes a model has learned: kept beside its weights as digests of their names, which it does not give away."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from tophit.errors import TophitError
from tophit.files import write_text

_FILE = "learned.json"


class LearnedClasses:
    """The classes that a model was trained on; none for a model of which it is not known.

    >>> "cup" in LearnedClasses.of(["cup", "mug"])
    True
    """

    def __init__(self, digests: Iterable[str] = ()) -> None:
        self._digests = frozenset(digests)

    @classmethod
    def of(cls, labels: Iterable[str]) -> "LearnedClasses":
        """Return the classes of some labels."""
        return cls(_digest(label) for label in set(labels))

    @classmethod
    def read(cls, folder: Path) -> "LearnedClasses":
        """Return the classes that the model in a folder has learned."""
        path = folder / _FILE
        if not path.is_file():
            return cls()
        try:
            return cls(map(str, json.loads(path.read_text(encoding="utf-8"))["classes"]))
        except (ValueError, KeyError, TypeError) as error:
            raise TophitError(f"{path} is damaged: {error!r}.") from error

    def save(self, folder: Path) -> None:
        """Write them beside the weights of a model; write nothing if there are none."""
        if self._digests:
            write_text(folder / _FILE, json.dumps({"classes": sorted(self._digests)}) + "\n")
        else:
            (folder / _FILE).unlink(missing_ok=True)

    def __contains__(self, label: object) -> bool:
        return bool(self._digests) and _digest(str(label)) in self._digests


def _digest(label: str) -> str:
    return hashlib.blake2b(label.encode(), digest_size=8).hexdigest()
