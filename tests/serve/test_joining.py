"""Searches that arrive together are answered by one call, each as if it were alone; processes count together."""

import asyncio
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tophit.cancelling import Cancelled, check_cancelled
from tophit.serve.following import Announcer, Follower
from tophit.serve.joining import Joiner
from tophit.serve.problems import Problem
from tophit.serve.rates import Rates
from tophit.serve.responses import json_answer
from tophit.serve.shared_metrics import added_up, publish, retire


class Work:
    """Doubles numbers; a call waits until it may go on, and every call is remembered."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.given_up = threading.Event()

    def __call__(self, given: Sequence[int]) -> list[Any]:
        self.calls.append(list(given))
        self.begun.release()
        self.may_end.acquire()
        try:
            check_cancelled()
        except Cancelled:
            self.given_up.set()
            raise
        if 13 in given:
            raise ValueError("13")
        return [ValueError("7") if one == 7 else 2 * one for one in given]


def together(given: Sequence[int], most: int = 100) -> tuple[Work, list[Any]]:
    """Do the first job, and meanwhile ask for the others."""

    async def run() -> list[Any]:
        with ThreadPoolExecutor(2) as threads:
            joiner = Joiner(threads, most)
            first = asyncio.create_task(joiner.do("doubled", work, given[0], 1))
            await asyncio.to_thread(work.begun.acquire)
            others = [asyncio.create_task(joiner.do("doubled", work, one, 1)) for one in given[1:]]
            await asyncio.sleep(0)  # they wait in line now
            work.may_end.release(100)
            return await asyncio.gather(first, *others, return_exceptions=True)

    work = Work()
    return work, asyncio.run(run())


def test_what_arrives_while_a_call_runs_is_done_by_the_next_one() -> None:
    work, results = together([1, 2, 3, 4])
    assert work.calls == [[1], [2, 3, 4]]
    assert results == [2, 4, 6, 8]


def test_a_call_has_a_largest_size() -> None:
    work, results = together([1, 2, 3, 4, 5], most=3)
    assert work.calls == [[1], [2, 3, 4], [5]]
    assert results == [2, 4, 6, 8, 10]


def test_one_that_fails_is_no_harm_to_the_others() -> None:
    work, results = together([1, 2, 7, 4])
    assert work.calls == [[1], [2, 7, 4]]
    assert [str(one) for one in results] == ["2", "4", "7", "8"]
    work, results = together([1, 2, 13, 4])
    assert work.calls == [[1], [2, 13, 4], [2], [13], [4]]
    assert [str(one) for one in results] == ["2", "4", "13", "8"]


def test_a_call_is_given_up_when_nobody_waits_for_any_of_its_jobs() -> None:
    async def run() -> None:
        with ThreadPoolExecutor(2) as threads:
            joiner = Joiner(threads, 100)
            tasks = [asyncio.create_task(joiner.do("doubled", work, one, 1)) for one in (1, 2)]
            await asyncio.to_thread(work.begun.acquire)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            work.may_end.release(100)

    work = Work()
    asyncio.run(run())
    assert work.calls[0] == [1, 2]
    assert work.given_up.is_set()


def test_requests_at_the_same_time_are_answered_as_they_are_alone(client: TestClient) -> None:
    queries: list[dict[str, Any]] = [{"ids": [f"class {n % 8}/{n % 6}.png"], "k": 1 + n % 2} for n in range(24)]
    queries += [{"ids": [f"missing {n}"]} for n in range(4)]
    queries += [{"ids": [f"class {n}/1.png"], "where": {"label": f"class {n % 2}"}} for n in range(4)]

    def told(query: dict[str, Any]) -> Any:
        answer = client.post("/search", json=query)
        return answer.status_code, answer.json().get("queries"), answer.json().get("error")

    alone = [told(query) for query in queries]
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(told, queries)) == alone
    assert [status for status, *_ in alone] == [200] * 24 + [404] * 4 + [200] * 4
    assert alone[24][2] == "The index has no item 'missing 0'."


def test_processes_count_requests_together(tmp_path: Path) -> None:
    now = [100.0]
    one, other = (Rates(lambda: now[0], tmp_path / "rates") for _ in range(2))
    for _ in range(10):
        one.take("someone", 10)
        other.take("someone", 10)
    for rates in (one, other):
        rates.take("another", 10)
        with pytest.raises(Problem, match="More than 10 requests"):
            rates.take("someone", 10)


def test_a_client_is_forgotten_only_when_many_others_came_after_it() -> None:
    rates = Rates(lambda: 100.0)
    rates.take("someone", 0.1)
    for number in range(500):
        rates.take(f"client {number}", 0.1)
    with pytest.raises(Problem):
        rates.take("someone", 0.1)


def test_what_a_process_counted_stays_when_it_is_replaced(tmp_path: Path) -> None:
    text = b"# TYPE a_total counter\na_total 2.0\n# TYPE memory gauge\nmemory 10.0\n"
    for _ in range(3):
        publish(tmp_path, 1, text)
        retire(tmp_path, 1)
    publish(tmp_path, 0, text)
    found = added_up(tmp_path).decode()
    assert "a_total 8.0" in found
    assert "memory 10.0" in found


def test_a_follower_looks_as_soon_as_it_is_told(tmp_path: Path) -> None:
    async def run() -> None:
        looked: asyncio.Queue[int] = asyncio.Queue()

        async def look() -> None:
            looked.put_nowait(1)

        (tmp_path / "1.follow").touch()  # left by a process that was killed
        task = asyncio.create_task(Follower(tmp_path, 1, look).run())
        announcer = Announcer(tmp_path)
        announcer.announce()
        while not (tmp_path / "1.follow").is_socket():
            await asyncio.sleep(0)
        for _ in range(3):
            announcer.announce()
            await asyncio.wait_for(looked.get(), 60)
        announcer.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_numbers_and_letters_that_a_fast_writer_refuses_are_written_too() -> None:
    assert json.loads(bytes(json_answer({"large": 2**70, "half": "\ud800"}).body)) == {"large": 2**70, "half": "?"}
