"""The schemas of answers, for the OpenAPI description; the answers themselves are written as plain JSON."""

from typing import Any

from pydantic import BaseModel, Field


class Error(BaseModel):
    """What went wrong, in a sentence."""

    error: str = Field(examples=["k is at most 1000, not 5000."])


class Times(BaseModel):
    """Milliseconds spent on this request."""

    decode_ms: float
    embed_ms: float
    search_ms: float


class Envelope(BaseModel):
    """What every answer contains: the model's id, the version of the index, the times."""

    model: str = Field(examples=["5f0c1e9d2b7a4c38"])
    index: str = Field(examples=["v1.3.12"])
    times: Times


class ItemAnswer(BaseModel):
    """An item: its id, label, metadata, and the address of its picture."""

    id: str = Field(examples=["cats/1.jpg"])
    label: str | None = Field(examples=["cat"])
    metadata: dict[str, Any] = Field(examples=[{"label": "cat", "split": "test"}])
    thumbnail: str | None


class Result(ItemAnswer):
    """A search result."""

    rank: int
    score: float
    chance: float | None = Field(None, description="That it is right, where the index is calibrated.")
    others: int | None = Field(None, description="With group_by: how many other items of its group there are.")


class QueryAnswer(BaseModel):
    """A query as it was understood, and its results, best first."""

    query: dict[str, Any] = Field(examples=[{"kind": "item", "id": "cats/7.jpg", "label": "cat"}])
    results: list[Result]
    stopped_at: int | None = Field(
        None,
        description="With group_by: how many results were looked at, if the search stopped before it had k groups.",
    )
    reason: str | None = Field(None, description="With min_chance or precision: why there are no results.")
    best_score: float | None = Field(None, description="Then: the score of the best result that was left out.")
    best_chance: float | None = Field(None, description="Then: its chance.")


class SearchAnswer(Envelope):
    """One entry per query."""

    queries: list[QueryAnswer]


class NamedPicture(BaseModel):
    """What a picture shows: a label and its chance; null, unknown, if the chance of the guess is below the cut-off."""

    query: dict[str, Any]
    label: str | None
    chance: float
    guess: str | None
    cut_off: float
    evidence: list[Result]


class NameAnswer(Envelope):
    """One entry per picture."""

    names: list[NamedPicture]


class Ranking(BaseModel):
    """A model's results."""

    name: str
    model: str
    results: list[Result]


class CompareAnswer(Envelope):
    """Two models' results of one query: ``first`` is the served one, ``second`` the one of ``--against``.

    ``changes`` are from the second to the first, by the ids that the first found: ranks gained (negative: lost), null
    for new results. ``lost`` are ids that only the second found.
    """

    query: dict[str, Any]
    first: Ranking
    second: Ranking
    changes: dict[str, int | None]
    lost: list[str]
    shared: int


class ItemsAnswer(Envelope):
    """Items."""

    items: list[ItemAnswer]


class UpsertAnswer(Envelope):
    """How many items were written, durably."""

    written: int


class DeleteAnswer(Envelope):
    """How many items were deleted."""

    deleted: int


class MapAnswer(Envelope):
    """What ``/map/points`` holds: the number of points, the names of the labels, how it was made."""

    state: str = Field(description="ready, or building: ask again in a second", examples=["ready"])
    map: str = Field(description="identifies this map; /map/points and /map/items refuse another")
    count: int
    labels: list[str]
    method: str = Field(examples=["t-SNE"])


class WorstEntry(BaseModel):
    """A query with its average precision and what it found."""

    query: ItemAnswer
    value: float
    first_right_rank: int
    results: list[dict[str, Any]]


class WorstAnswer(Envelope):
    """The worst queries, and which labels are confused."""

    state: str
    tried: int
    unseen: bool = Field(description="Whether only items were tried that the model has not learned.")
    metrics: dict[str, float]
    queries: list[WorstEntry]
    confusions: list[dict[str, Any]]


class AboutAnswer(Envelope):
    """What is served, and the fields to filter by."""

    name: str
    items: int
    dim: int
    against: str | None
    run: dict[str, Any] | None
    writable: bool
    process: int = Field(description="Which of several processes answers (--workers); 0 is the one that writes.")
    calibration: dict[str, Any] | None = Field(description="How chances were calibrated; null if they were not.")
    words: bool = Field(description="Whether text can be searched for: the model has a text tower.")
    fields: list[dict[str, Any]]
    limits: dict[str, float]
