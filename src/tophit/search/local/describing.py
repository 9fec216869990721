"""The facts of a local index, as ``Index.stats`` tells them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tophit.search.local.budget import LocalOptions
from tophit.search.local.choosing import exact_limit
from tophit.search.local.segment import Segment
from tophit.search.local.state import State


def description(state: State, options: LocalOptions, folder: Path) -> dict[str, Any]:
    """Return the facts: counts, the kind of index and why it was chosen, measured recall, bytes on disk."""
    segments = [_describe(segment) for segment in state.segments]
    return {
        "engine": "local",
        "count": sum(part.live_count for part in state.parts()),
        "dim": state.snapshot.dim,
        "version": state.snapshot.version,
        "kind": "+".join(sorted({segment["kind"] for segment in segments})) or "flat",
        "recall@10": min((segment["recall@10"] for segment in segments), default=1.0),
        "recall_target": options.recall,
        "kind_wanted": options.kind,
        "exact_below": exact_limit(options),
        "budget": {"memory": options.most_bytes, "build": options.most_seconds},
        "segments": segments,
        "measured": [one for segment in state.segments for one in segment.facts.tuning.get("measured", ())],
        "delta": state.delta.live_count,
        "dead": state.delta.dead + sum(segment.dead for segment in state.segments),
        "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
    }


def why_exact(facts: Mapping[str, Any]) -> str:
    """Say why the index with these facts is searched exactly though another kind was asked for; else nothing."""
    wanted = facts.get("kind_wanted", "auto")
    if wanted in ("auto", "flat") or facts["kind"] != "flat":
        return ""
    if facts["recall_target"] == 1:
        return f"A recall of 1 needs an exact search: --kind {wanted} counts only with a lower --recall."
    return f"Fewer than {facts['exact_below']:,} items are searched exactly: --kind {wanted} counts from there on."


def _describe(segment: Segment) -> dict[str, Any]:
    """Return a segment's size, kind and the recall measured when it was made."""
    facts = segment.facts
    if facts.kind == "flat":
        return {"count": facts.count, "kind": "flat", "recall@10": 1.0}
    measured = {f"recall@{k}": facts.tuning[k]["recall"] for k in ("10", "100")}
    effort = {f"effort@{k}": facts.tuning[k]["effort"] for k in ("10", "100")}
    return {"count": facts.count, "kind": facts.kind, **measured, **effort, "sample": facts.tuning["sample"]}
