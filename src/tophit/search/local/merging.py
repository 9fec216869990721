"""Making segments: the delta and some segments become one new segment, named by a new snapshot."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.budget import LocalOptions
from tophit.search.local.choosing import Choice, choose, is_exact
from tophit.search.local.keys import rows_of
from tophit.search.local.segment import Segment, add_approximate, write_segment
from tophit.search.local.snapshot import SegmentFacts, next_version, publish, remove_all
from tophit.search.local.state import State


def seal(folder: Path, state: State) -> None:
    """Turn the delta into a flat segment, together with the small flat segments before it.

    A segment is included if it is not larger than what it joins, so sizes grow geometrically and few segments remain.
    """
    first, joined = len(state.segments), state.delta.live_count
    while first and state.segments[first - 1].facts.kind == "flat" and state.segments[first - 1].live_count <= joined:
        first -= 1
        joined += state.segments[first].live_count
    _replace(folder, state, first, write_segment(folder, [*state.segments[first:], state.delta], state.database.texts))


def compact(folder: Path, state: State, options: LocalOptions) -> bool:
    """Merge everything into one segment of the right kind, tuned, and keep the options; return whether it changed."""
    count = sum(part.live_count for part in state.parts())
    if _is_compact(state, options, count):
        if options == LocalOptions(**state.snapshot.options):
            return False
        _replace(folder, state, len(state.segments), None, asdict(options))
        return True
    facts = write_segment(folder, [*state.segments, state.delta], state.database.texts)
    if facts is not None:
        facts = _with_index(folder, facts, state.snapshot.dim, options, _chosen_before(state))
    _replace(folder, state, 0, facts, asdict(options))
    return True


def _is_compact(state: State, options: LocalOptions, count: int) -> bool:
    """Return whether there is one segment, as these options would make it."""
    if state.delta.count or any(segment.dead for segment in state.segments):
        return False
    if not count:
        return not state.segments
    if len(state.segments) != 1:
        return False
    facts = state.segments[0].facts
    if is_exact(count, options):
        return facts.kind == "flat"
    if "asked" in facts.tuning:
        return (facts.tuning["asked"], facts.tuning["target"]) == (options.asked(), options.recall)
    # made by an earlier version: lists unless a graph was asked for
    made = "ivf" if options.kind == "auto" else options.kind
    return facts.kind == made and facts.tuning.get("target") == options.recall


def _chosen_before(state: State) -> Choice | None:
    """Return the kind that was chosen for the largest segment, with what was measured then; None without segments."""
    facts = max((segment.facts for segment in state.segments), key=lambda facts: facts.count, default=None)
    return None if facts is None else Choice(facts.kind, None, facts.tuning)


def _with_index(
    folder: Path, facts: SegmentFacts, dim: int, options: LocalOptions, before: Choice | None
) -> SegmentFacts:
    """Add what makes the searches of a segment fast."""
    try:
        choice = choose(Segment(folder, facts, dim, np.empty(0, np.int64)).vectors, options, before)
        if choice.index is None:
            return replace(facts, tuning=choice.tuning)
        return add_approximate(folder, facts, choice.index, choice.kind, choice.tuning)
    except BaseException:
        remove_all(folder, set(facts.files))
        raise


def _replace(
    folder: Path, state: State, first: int, made: SegmentFacts | None, options: dict[str, object] | None = None
) -> None:
    """Activate the segments before ``first`` and the new one; then remove what no snapshot needs.

    The log keeps what the previous snapshot needs, so that one can go back to it without loss.
    """
    before, database = state.snapshot, state.database
    kept = [segment.facts for segment in state.segments[:first]]
    _check_complete(state, first, made)
    snapshot = next_version(
        before,
        sealed=database.fact("last_key"),
        segments=(*kept, *([made] if made else [])),
        options=options or before.options,
    )
    publish(folder, snapshot)  # if it fails, either snapshot may be active: the backend looks
    tombstones = database.tombstones()
    needed = _held_by(tombstones, folder, snapshot.dim, (*before.segments, *snapshot.segments))
    with database.transaction("compaction"):
        database.forget(before.sealed, tombstones[~needed], before.version)


def _check_complete(state: State, first: int, made: SegmentFacts | None) -> None:
    """Refuse to activate a version that lacks an item: a mistake must not become a loss."""
    kept = sum(segment.live_count for segment in state.segments[:first]) + (made.count if made else 0)
    (items,) = state.database.connection.execute("SELECT count(*) FROM items").fetchone()
    if kept != items:
        raise TophitError(f"The new version would have {kept} vectors for {items} items; the index stays as it was.")


def _held_by(tombstones: np.ndarray, folder: Path, dim: int, segments: Sequence[SegmentFacts]) -> np.ndarray:
    """Return for each tombstone whether one of the segments holds its key."""
    held = np.zeros(len(tombstones), bool)
    for name in {facts.name for facts in segments} if len(tombstones) else ():
        keys = np.memmap(folder / f"{name}.keys", np.int64, "r")
        held[rows_of(tombstones, np.asarray(keys))] = True
    return held
