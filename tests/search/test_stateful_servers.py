"""The stateful property test on Milvus and on PostgreSQL; each example starts by emptying the same collection."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.search.servers import place_of
from tests.search.stateful import DIM, IndexMachine

from tophit.search import Index


@pytest.mark.parametrize("backend", ["milvus", "pgvector"])
def test_a_backend_does_what_a_dictionary_does(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = place_of(backend, request, tmp_path)
    place.create(DIM).close()

    def emptied() -> Index:
        index = place.open()
        index.delete([item.id for item in index.items()])
        return index

    def reopened(index: Index) -> Index:
        index.close()
        return place.open()

    class Machine(IndexMachine):
        create: Any = staticmethod(emptied)
        reopen: Any = staticmethod(reopened)

    calm = settings(max_examples=10, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Machine, settings=calm)
