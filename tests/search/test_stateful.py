"""The stateful property test on the local backend."""

import shutil
import tempfile
from typing import Any

from hypothesis import settings
from tests.search.stateful import DIM, IndexMachine

from tophit.search import Index


def create_local() -> Index:
    return Index.create(tempfile.mkdtemp(), DIM)


def reopen_local(index: Index) -> Index:
    index.close()
    return Index.open(index.backend.folder, writable=True)  # type: ignore[attr-defined]


class LocalMachine(IndexMachine):
    create = staticmethod(create_local)
    reopen = staticmethod(reopen_local)

    def teardown(self) -> None:
        backend: Any = self.index.backend
        assert self.index.verify() == []
        super().teardown()
        shutil.rmtree(backend.folder)


TestLocal = LocalMachine.TestCase
TestLocal.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
