"""The connections of a server: how many there are in all and of each client, and what they hold in memory."""

from collections.abc import Iterable
from typing import Protocol

from tophit.serve.config import Limits


class Connection(Protocol):
    """What the register needs to know of a connection."""

    address: str

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is being answered: it is silent, or still sending headers."""
        ...

    @property
    def unread_bytes(self) -> int:
        """What was answered but not read by the client."""
        ...

    def cut(self) -> None:
        """Close it at once and forget what was not sent."""
        ...


class Connections:
    """Admits connections up to the limits. Where one is reached, the oldest idle connection makes room.

    So a client that opens many connections and says nothing cuts off only its own, and a new request is answered.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: dict[Connection, None] = {}
        self._by_client: dict[str, dict[Connection, None]] = {}
        self._unread: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, new: Connection) -> bool:
        """Register a connection; False if there is no room for it."""
        own = self._by_client.get(new.address, {})
        if len(own) >= self._limits.client_connections and not self._make_room(own):
            return False
        if len(self._all) >= self._limits.connections and not self._make_room(self._all):
            return False
        self._all[new] = None
        self._by_client.setdefault(new.address, {})[new] = None
        return True

    def forget(self, gone: Connection) -> None:
        """Remove a connection that was closed."""
        self._all.pop(gone, None)
        self._unread.pop(gone, None)
        own = self._by_client.get(gone.address)
        if own is not None:
            own.pop(gone, None)
            if not own:
                del self._by_client[gone.address]

    def fills(self, slow: Connection) -> None:
        """Note that a client does not read as fast as it is answered; cut those off that wait longest if it's too much.

        What an answer still has to write is counted as it is now.
        """
        self._unread[slow] = None
        total = sum(each.unread_bytes for each in self._unread)
        for each in list(self._unread):
            if total <= self._limits.unread_bytes:
                return
            total -= each.unread_bytes
            self._cut(each)

    def drained(self, quick: Connection) -> None:
        """Note that a client has read its answer."""
        self._unread.pop(quick, None)

    def _make_room(self, some: Iterable[Connection]) -> bool:
        victim = next((each for each in some if each.is_idle), None)
        if victim is not None:
            self._cut(victim)
        return victim is not None

    def _cut(self, victim: Connection) -> None:
        self.forget(victim)
        victim.cut()
