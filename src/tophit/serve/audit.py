"""The audit log: who changed what and when, a line of JSON for each change."""

import json
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tophit.serve.problems import log


class AuditLog:
    """Appends to a file, which is opened for each line so that it may be moved away at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.Lock()

    def write(self, who: str, client: str, what: str, ids: Sequence[str], outcome: str) -> None:
        """Add a line. The change itself is done or refused already: a log that can't be written doesn't undo it."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        fields = {"at": at, "who": who, "client": client, "what": what, "outcome": outcome, "ids": list(ids)}
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"
        try:
            with self._turn:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    os.write(handle, line.encode(errors="replace"))
                finally:
                    os.close(handle)
        except OSError as error:
            log.error("%s can't be written (%s); the line was: %s", self.path, error.strerror, line.strip())
