"""What a server answers from: a model and its index, perhaps a second one of each, and their pictures."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tophit.cancelling import Cancelled
from tophit.errors import UsageError
from tophit.search.backend import Item
from tophit.search.field_values import unknown_field
from tophit.search.versions import read_versions
from tophit.serve.audit import AuditLog
from tophit.serve.config import ServeConfig
from tophit.serve.decode_pool import DecodePool
from tophit.serve.following import Announcer, Follower
from tophit.serve.guard import Caller, stages
from tophit.serve.index_views import MOST_FIELDS, EmbeddingMap, Survey, Worst, find_worst, gently, make_map, survey
from tophit.serve.item_names import ItemNames
from tophit.serve.metrics import Metrics
from tophit.serve.problems import Problem, log, stopping, too_busy
from tophit.serve.requests import RESERVED
from tophit.serve.security import kept_key
from tophit.serve.served_model import ServedModel, in_daemon
from tophit.serve.served_pictures import SharedUploads, Thumbnails, Uploads, seal, unseal
from tophit.serve.shared_metrics import added_up, publish

_REFRESH_SECONDS = 2.0
_REMOTE_TURNS = 15
"""A remote engine counts its items only so often: that may take it long."""
_REMAKE_SECONDS = 60.0
_BATCH = 256


@dataclass(frozen=True)
class _Kept:
    """A view of a version of the index, and when it was made."""

    version: str
    value: Any
    at: float


class Library:
    """Everything behind the routes. Created before the event loop runs; ``start`` and ``close`` run in the loop."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.limits = config.limits
        self.metrics = Metrics()
        self.stopping = False
        self.first = ServedModel(config.folder, config.writable, self.limits, self.metrics, _name(config.folder))
        self.second: ServedModel | None = None
        try:
            if config.against is not None:
                self.second = ServedModel(config.against, False, self.limits, self.metrics, _name(config.against))
            self.run = _run_facts(config.run, self.first.model) if config.run is not None else None
        except BaseException:
            self._close_models()
            raise
        self.own_folder = config.own_folder
        self.key = config.shared.key if config.shared is not None else kept_key(self.own_folder / "key")
        least = max(model.catalogue.embedder.preprocessing.least_side for model in self.models)
        self.pool = DecodePool(self.limits, least)
        shared = config.shared
        self.uploads = (
            Uploads(self.limits.uploads)
            if shared is None
            else SharedUploads(self.limits.uploads, shared.folder / "uploads")
        )
        self.thumbnails = Thumbnails(self.pool, self.roots)
        self.names = ItemNames(self.key)
        self.audit = AuditLog(config.audit_log or self.own_folder / "audit.jsonl")
        self.survey = Survey(self.first.count, {}, None, [])
        self._changes: set[asyncio.Task[int]] = set()
        self._turn_to_change = asyncio.Lock()
        self.large = asyncio.Semaphore(1)
        """The turn of searches with many results."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._jobs: dict[str, asyncio.Task[Any]] = {}
        self._kept: dict[str, _Kept] = {}
        self._surveyed = ""
        self._announcer = Announcer(shared.folder) if shared is not None and shared.number == 0 else None

    @property
    def models(self) -> list[ServedModel]:
        """The models that are served."""
        return [self.first] if self.second is None else [self.first, self.second]

    def identity(self) -> tuple[str, str]:
        """Return the model's id and the version of the index."""
        return self.first.model, self.first.version

    def roots(self) -> list[Path]:
        """Return the folders inside which pictures are served."""
        return [self.own_folder / "images", *([self.names.root] if self.names.root is not None else [])]

    async def start(self) -> None:
        """Learn what the index holds and start watching it."""
        await self._look()
        self._publish_metrics()
        self._tasks.add(asyncio.create_task(self._watch()))
        shared = self.config.shared
        if shared is not None and shared.number:
            follower = Follower(shared.folder, shared.number, self.first.refresh)
            self._tasks.add(asyncio.create_task(follower.run()))

    async def close(self) -> None:
        """Stop watching, end the processes, finish the changes and close the indexes."""
        self.stopping = True
        for task in [*self._tasks, *self._jobs.values()]:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        await asyncio.gather(*self._changes, return_exceptions=True)
        await self.pool.close()
        if self._announcer is not None:
            self._announcer.close()
        await asyncio.to_thread(self._close_models)

    def _close_models(self) -> None:
        """Close the indexes."""
        for model in self.models:
            model.close()

    async def _look(self) -> None:
        """Survey the index. The folder of the images is set once.

        The catalogue knows it since the index was made; of an older one it is the deepest that holds all images.
        """
        version, uploads = self.first.version, (self.own_folder / "images").absolute()
        items = self.first.index.items(_BATCH)
        some = gently(items, _BATCH) if self._surveyed else items  # at the start nobody waits yet
        made = await self.first.call(lambda: survey(some, self.first.count, uploads))
        if not self._surveyed:
            kept = read_versions(self.config.folder).images
            self.names.root = self.config.images or (made.root if kept is None else Path(kept))
        self.survey, self._surveyed = made, version

    async def _watch(self) -> None:
        looked = time.monotonic()
        for turn in itertools.count(1):
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                for model in self.models:
                    if model.is_local or turn % _REMOTE_TURNS == 0:
                        await model.refresh()
                await self.first.recover()
                self._publish_metrics()
                self._publish_trouble()
                if self.first.version != self._surveyed and time.monotonic() - looked > 10 * _REFRESH_SECONDS:
                    looked = time.monotonic()  # not for every write: a pass over a large index takes long
                    await self._look()
            except Exception:  # go on watching, whatever happened
                log.exception("the index can't be surveyed")

    async def items(self, names: Sequence[str]) -> list[Item]:
        """Return the items that a client names, or raise a Problem for one that is not in the index."""
        found = await self.first.call(self.find_items, self.first, names)
        for name, item in zip(names, found, strict=True):
            if item is None:
                raise no_item(name)
        return [item for item in found if item is not None]

    def find_items(self, model: ServedModel, names: Sequence[str]) -> list[Item | None]:
        """Return the items that clients name, None for one that is not in the index; call it in a thread."""
        possible = [self.names.possible(name) for name in names]
        found = iter(model.index.get([one for some in possible for one in some]))
        return [next((each for each in [next(found) for _ in some] if each is not None), None) for some in possible]

    async def inner_ids(self, names: Sequence[str]) -> list[str]:
        """Return the ids under which items are stored that a client names; a new one is stored under its name."""
        possible = [self.names.possible(name) for name in names]
        found = await self.first.call(self.first.index.get, [one for some in possible for one in some])
        known = {item.id for item in found if item is not None}
        return [next((one for one in some if one in known), some[0]) for some in possible]

    async def change(self, what: str, caller: Caller, ids: Sequence[str], work: Coroutine[Any, Any, int]) -> int:
        """Carry out a change to its end, even if its client has gone meanwhile, and note it in the audit log."""
        if len(self._changes) >= self.limits.queue:
            work.close()
            raise too_busy()
        task = asyncio.create_task(self._audited(what, caller, ids, work))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _audited(self, what: str, caller: Caller, ids: Sequence[str], work: Coroutine[Any, Any, int]) -> int:
        outcome = "ended"
        try:
            async with self._turn_to_change:
                count = await work
            outcome = f"done: {count}"
            return count
        except Exception as error:
            outcome = f"failed: {error}"
            raise
        finally:
            if self._announcer is not None:
                self._announcer.announce()
            self._publish_trouble()
            await self.first.call(self.audit.write, caller.name, caller.client, what, ids, outcome)

    def check_fields(self, named: Iterable[str]) -> None:
        """Raise if a request names a field that no item has, as far as the survey of the index is up to date."""
        fields = self.survey.fields
        unknown = sorted(set(named) - fields.keys() - {"id", *RESERVED})
        if unknown and fields and len(fields) < MOST_FIELDS and self._surveyed == self.first.version:
            raise unknown_field(unknown[0], fields)

    def plain_item(self, item_id: str, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return an item as clients see it: without its vector and path."""
        shown = {name: value for name, value in metadata.items() if name not in RESERVED}
        address = f"/thumbnails/{seal(self.key, item_id)}" if "path" in metadata else None
        return {
            "id": self.names.public(item_id, metadata),
            "label": None if (label := metadata.get("label")) is None else str(label),
            "metadata": shown,
            "thumbnail": address,
        }

    def envelope(self, model: ServedModel) -> dict[str, Any]:
        """Return what every answer contains."""
        times = {f"{name}_ms": round(1000 * seconds, 3) for name, seconds in stages().items()}
        return {"model": model.model, "index": model.version, "times": times}

    async def thumbnail(self, name: str, size: int) -> bytes:
        """Return the picture behind an encrypted name."""
        item_id = unseal(self.key, name)
        if item_id is None:
            raise Problem(404, "There is no such picture.")
        for model in self.models:
            found = (await model.call(model.index.get, [item_id]))[0]
            if found is not None:
                return await self.thumbnails.get(found.metadata, size)
        raise Problem(404, "This item was deleted.")

    async def map(self, name: str | None = None) -> EmbeddingMap | None:
        """Return the map, or None while it is being made; a map that is not the named one is a Problem."""
        made = await self._made("map", lambda: make_map(self.first.index, self.own_folder, self.first.version))
        if made is not None and name is not None and name != made.name:
            raise Problem(409, "The map has been updated; load it again.")
        return made

    async def worst(self) -> Worst | None:
        """Return the worst queries, or None while they are being searched for."""
        return await self._made("worst", lambda: find_worst(self.first.index))

    async def _made(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a view of the index that a thread makes; None until the first one is ready.

        After a change of the index it is made again, at most once a minute; the old one is returned meanwhile.
        """
        kept = self._kept.get(name)
        stale = kept is None or (kept.version != self.first.version and time.monotonic() - kept.at > _REMAKE_SECONDS)
        if stale and name not in self._jobs:
            self._jobs[name] = asyncio.create_task(self._make(name, make))
        if kept is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._jobs[name]), 1.0)
            kept = self._kept.get(name)
        return None if kept is None else kept.value

    async def _make(self, name: str, make: Callable[[], Any]) -> None:
        version = self.first.version
        try:
            self._kept[name] = _Kept(version, await in_daemon(make), time.monotonic())
        except Cancelled:
            raise stopping() from None
        except Exception as error:
            log.exception("the %s can't be made", name)
            raise Problem(
                503, f"The {name} can't be made; the server's log says why.", {"Retry-After": "60"}
            ) from error
        finally:
            del self._jobs[name]

    def metrics_text(self) -> bytes:
        """Return the counts in Prometheus' text format; those of all processes where there are several."""
        if self.config.shared is None:
            return self.metrics.text(self.first.count)
        self._publish_metrics()
        return added_up(self.config.shared.folder)

    @property
    def trouble(self) -> str:
        """Why writes fail; nothing if they don't. The other processes learn it from the one that writes."""
        shared = self.config.shared
        if shared is None or shared.number == 0:
            return self.first.trouble
        with suppress(OSError):
            return shared.trouble.read_text(encoding="utf-8")
        return ""

    def _publish_trouble(self) -> None:
        shared, trouble = self.config.shared, self.first.trouble
        if shared is not None and shared.number == 0:
            with suppress(OSError):
                if trouble:
                    shared.trouble.write_text(trouble, encoding="utf-8")
                else:
                    shared.trouble.unlink(missing_ok=True)

    def _publish_metrics(self) -> None:
        if self.config.shared is not None:
            publish(self.config.shared.folder, self.config.shared.number, self.metrics.text(self.first.count))

    def about(self) -> dict[str, Any]:
        """Return what a page needs to know before the first search."""
        return {
            "name": self.first.name,
            "items": self.first.count,
            "dim": self.first.index.dim,
            "against": self.second.name if self.second else None,
            "run": self.run,
            "writable": self.config.writable,
            "process": self.config.shared.number if self.config.shared is not None else 0,
            "calibration": _calibration_facts(self.first),
            "words": self.first.catalogue.embedder.takes_words,
            "fields": [facts.plain() for facts in self.survey.fields.values()],
            "limits": {name: getattr(self.limits, name) for name in ("k", "files", "body_bytes", "pixels", "side")},
        }


def no_item(name: str) -> Problem:
    """Return the answer to a client that names an item which is not in the index."""
    return Problem(404, f"The index has no item '{name}'.")


def _name(folder: Path) -> str:
    """Return the name of an index: its folder's, with the parent's before a plain 'index'."""
    full = folder.absolute()
    return f"{full.parent.name}/{full.name}" if full.name == "index" else full.name


def _calibration_facts(model: ServedModel) -> dict[str, Any] | None:
    """Return how the chances of an index were calibrated, in words and numbers."""
    stored = model.catalogue.calibration
    if stored is None:
        return None
    made = stored.calibration
    return {"unknown": made.unknown, "classes": made.classes, "sentences": stored.sentences()}


def _run_facts(run: Path, model: str) -> dict[str, Any]:
    """Return a run's name and its measured metrics, refusing one whose model did not make the index."""
    import json

    from tophit.models.embedder import load

    if load(run).fingerprint() != model:
        raise UsageError(
            f"The index was not made by the model of {run}; serve the index of that run, or leave --run out."
        )
    result = run / "result.json"
    test = json.loads(result.read_text(encoding="utf-8")).get("test", {}) if result.is_file() else {}
    return {"name": run.absolute().name, "metrics": {k: v for k, v in test.items() if isinstance(v, (int, float))}}
