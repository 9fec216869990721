"""Work ahead: a thread makes the next few values while the caller uses the last one."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Value = TypeVar("Value")


class _End:
    """What follows the last value: the error that ended the work, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def ahead(values: Iterable[Value], most: int = 2) -> Iterator[Value]:
    """Yield the values, made in a thread that is at most ``most`` of them ahead; its error is raised here.

    If the caller stops early, so does the thread, after the value that it is making.
    """
    made: queue.Queue[Value | _End] = queue.Queue(most)
    stopped = threading.Event()

    def give(one: Value | _End) -> None:
        while not stopped.is_set():
            try:
                made.put(one, timeout=0.1)
            except queue.Full:
                continue
            return

    def work() -> None:
        try:
            for value in values:
                give(value)
                if stopped.is_set():
                    return
        except BaseException as error:
            give(_End(error))
        else:
            give(_End())

    thread = threading.Thread(target=work, name="reads-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(one := made.get(), _End):
            yield one
        if one.error is not None:
            raise one.error
    finally:
        stopped.set()
        thread.join()
