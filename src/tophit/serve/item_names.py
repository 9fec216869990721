"""What clients call items: a path without the folder of the images, any other id as it is, and never another path."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tophit.search.prepare import MOST_ID_BYTES
from tophit.serve.served_pictures import seal, unseal

_SEALED = "sealed:"


class ItemNames:
    """Translates between the ids of an index and the names that clients see.

    An id that is the path of an image inside ``root`` is shown without it. One that is a path elsewhere is shown
    encrypted, so that no answer tells where else files are.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.root: Path | None = None

    def public(self, item_id: str, metadata: Mapping[str, Any]) -> str:
        """Return the name of an item."""
        if self.root is not None and item_id.startswith(f"{self.root}{os.sep}"):
            return item_id[len(str(self.root)) + 1 :]
        path = metadata.get("path")
        is_path = isinstance(path, str) and os.path.isabs(path) and item_id.split("#", 1)[0] == path.split("#", 1)[0]
        return f"{_SEALED}{seal(self._key, item_id)}" if is_path else item_id

    def possible(self, name: str) -> list[str]:
        """Return the ids that a name may stand for, the likeliest first."""
        if name.startswith(_SEALED) and (found := unseal(self._key, name.removeprefix(_SEALED))) is not None:
            return [found]
        long = f"{self.root}{os.sep}{name}"
        return [name, long] if self.root is not None and len(long.encode(errors="replace")) <= MOST_ID_BYTES else [name]
