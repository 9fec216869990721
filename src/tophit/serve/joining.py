"""Work that arrives at the same time is done by one call."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tophit.cancelling import cancellable, check_cancelled

Work = Callable[[Sequence[Any]], Sequence[Any]]
"""From jobs to the result of each, in order; an exception stands for a job that failed alone."""


class _Call:
    """Jobs that are done together, until nobody waits for any of them."""

    def __init__(self, jobs: "list[_Job]") -> None:
        self.jobs = jobs
        self.given_up = threading.Event()
        self._wanted = len(jobs)
        for job in jobs:
            job.call = self

    def leave(self) -> None:
        """Note that the client of one job has gone."""
        self._wanted -= 1
        if not self._wanted:
            self.given_up.set()


@dataclass(eq=False)
class _Job:
    given: Any
    size: int
    result: asyncio.Future[Any]
    call: _Call | None = None


@dataclass(eq=False)
class _Line:
    """Jobs of one kind that wait. While one call is running, the next one fills up."""

    work: Work
    waiting: deque[_Job] = field(default_factory=deque)


class Joiner:
    """Does jobs in threads; those of the same kind, as many as wait, in one call of at most ``most`` in size.

    Nothing waits for others to arrive: a call starts as soon as what has arrived by now is known.
    """

    def __init__(self, threads: Executor, most: int, seen: Callable[[int], None] = lambda jobs: None) -> None:
        self._threads = threads
        self._most = most
        self._seen = seen
        self._lines: dict[Hashable, _Line] = {}

    async def do(self, kind: Hashable, work: Work, given: Any, size: int) -> Any:
        """Return the result of a job. For jobs of the same kind, the ``work`` of any of them must do."""
        loop = asyncio.get_running_loop()
        job = _Job(given, size, loop.create_future())
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(work)
            loop.call_soon(self._start, kind, line)  # after the requests that have arrived together with this one
        line.waiting.append(job)
        try:
            return await job.result
        except asyncio.CancelledError:
            if job.call is not None:
                job.call.leave()
            raise

    def _start(self, kind: Hashable, line: _Line) -> None:
        some, room = [], self._most
        while line.waiting and (not some or line.waiting[0].size <= room):
            job = line.waiting.popleft()
            if not job.result.done():  # else its client has gone
                some.append(job)
                room -= job.size
        if not some:
            del self._lines[kind]
            return
        self._seen(len(some))
        self._threads.submit(self._run, asyncio.get_running_loop(), kind, line, _Call(some))

    def _run(self, loop: asyncio.AbstractEventLoop, kind: Hashable, line: _Line, call: _Call) -> None:
        with cancellable(call.given_up):
            done = _done(line.work, [job.given for job in call.jobs])
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._finish, kind, line, call, done)

    def _finish(self, kind: Hashable, line: _Line, call: _Call, done: Sequence[Any]) -> None:
        for job, result in zip(call.jobs, done, strict=True):
            if job.result.done():
                continue
            if isinstance(result, BaseException):
                job.result.set_exception(result)
            else:
                job.result.set_result(result)
        self._start(kind, line)


def _done(work: Work, given: Sequence[Any]) -> Sequence[Any]:
    """Do jobs together; if that fails, each alone, so that one which can't be done is no harm to the others."""
    try:
        check_cancelled()
        return work(given)
    except BaseException as error:
        return [error] if len(given) == 1 else [_done(work, [one])[0] for one in given]
