"""The routes: what they find, against the catalogue itself."""

import json
import struct
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.models.towers import tiny_towers
from tests.serve.served import Place, client_of, encoded

import tophit
from conftest import draw_picture
from tophit.data.folders import manifest_from_folder
from tophit.search.backend import Item
from tophit.search.catalogue import ItemId, build_catalogue, open_catalogue
from tophit.search.query import Query as CatalogueQuery
from tophit.serve.config import Limits
from tophit.serve.index_views import survey

FIRST = "class 2/3.png"


def ids(answer: httpx.Response, query: int = 0) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [hit["id"] for hit in answer.json()["queries"][query]["results"]]


def expected(served: Place, name: str, k: int = 5, **how: object) -> list[str]:
    with open_catalogue(served.index) as catalogue:
        hits = catalogue.search_ids([str(served.images / name)], k, **how)[0]  # type: ignore[arg-type]
    return [hit.id[len(str(served.images)) + 1 :] for hit in hits]


def test_search_by_id_finds_what_the_catalogue_finds_and_says_by_what(client: TestClient, served: Place) -> None:
    answer = client.post("/search", json={"ids": [FIRST, "class 0/0.png"], "k": 5})
    assert ids(answer) == expected(served, FIRST)
    assert ids(answer, 1) == expected(served, "class 0/0.png")
    told = answer.json()
    with open_catalogue(served.index) as catalogue:
        assert told["model"] == answer.headers["x-tophit-model"] == catalogue.index.fingerprint
    assert told["index"] == answer.headers["x-tophit-index"]
    assert told["index"].startswith("v1.")
    assert set(told["times"]) == {"decode_ms", "embed_ms", "search_ms"}
    assert told["times"]["search_ms"] > 0
    assert "search;dur=" in answer.headers["server-timing"]
    hit = told["queries"][0]["results"][0]
    assert hit["metadata"]["price"] >= 0
    assert "path" not in hit["metadata"]
    assert str(served.images) not in answer.text  # where files are is the server's business


def test_search_by_upload_and_again_by_its_name(client: TestClient, served: Place) -> None:
    data = (served.images / FIRST).read_bytes()
    answer = client.post("/search", files={"files": ("../../etc/passwd", data)}, data={"query": '{"k": 6}'})
    assert ids(answer)[0] == FIRST
    assert ids(answer)[1:] == expected(served, FIRST)
    assert answer.json()["times"]["decode_ms"] > 0
    assert answer.json()["times"]["embed_ms"] > 0
    name = answer.json()["queries"][0]["query"]["upload"]
    assert ids(client.post("/search", json={"uploads": [name], "k": 6})) == ids(answer)
    picture = client.get(f"/uploads/{name}")
    assert picture.headers["content-type"] == "image/webp"
    assert picture.content != data
    two = client.post("/search", files=[("files", ("a", data)), ("files", ("b", data))], data={"query": '{"k": 2}'})
    assert len(two.json()["queries"]) == 2
    one = client.post("/search", files=[("files", data), ("files", data)], data={"query": '{"k": 6, "together": true}'})
    assert [len(one.json()["queries"]), ids(one)] == [1, ids(answer)]


def test_search_by_a_box_is_a_search_by_that_part(client: TestClient, served: Place) -> None:
    picture = draw_picture(1, 50, side=96)
    whole = np.asarray(draw_picture(5, 51, side=96)).copy()
    canvas = np.concatenate([np.asarray(picture), whole], axis=1)
    from PIL import Image

    both = encoded(Image.fromarray(canvas))
    part = client.post("/search", files={"files": both}, data={"query": '{"k": 6, "box": [0.5, 0, 1, 1]}'})
    alone = client.post("/search", files={"files": encoded(Image.fromarray(whole))}, data={"query": '{"k": 6}'})
    assert ids(part) == ids(alone)
    name = part.json()["queries"][0]["query"]["upload"]
    again = client.post("/search", json={"uploads": [name], "box": [0.5, 0, 1, 1], "k": 6})
    assert len(set(ids(again)) & set(ids(alone))) >= 5  # from the kept, lossy picture
    item = client.post("/search", json={"ids": [FIRST], "box": [0, 0, 1, 1], "k": 3})
    assert ids(item)[0] == FIRST  # a part of an item finds the item too


def test_likes_dislikes_filters_and_reranking_are_the_catalogue_s(client: TestClient, served: Place) -> None:
    liked = client.post(
        "/search", json={"ids": [FIRST], "like": ["class 4/1.png"], "unlike": ["class 0/0.png"], "k": 5}
    )
    from tophit.search.query import ItemId

    with open_catalogue(served.index) as catalogue:
        names = [ItemId(str(served.images / name)) for name in (FIRST, "class 4/1.png", "class 0/0.png")]
        hits = catalogue.search_examples(names[:2], names[2:], 5)
    assert ids(liked) == [hit.id[len(str(served.images)) + 1 :] for hit in hits]
    where = {"label": ["class 1", "class 2"], "price": {"lt": 22}}
    assert ids(client.post("/search", json={"ids": [FIRST], "where": where, "k": 5})) == expected(
        served, FIRST, where=where
    )
    from tophit.reranking import parse_reranking

    steps = [parse_reranking("alpha-qe:neighbours=3"), parse_reranking("k-reciprocal:candidates=20,k1=5,k2=2")]
    body = {"ids": [FIRST], "k": 5, "rerank": ["alpha-qe:neighbours=3", "k-reciprocal:candidates=20,k1=5,k2=2"]}
    assert ids(client.post("/search", json=body)) == expected(served, FIRST, rerank=steps)


def test_two_models_on_one_query_with_rank_changes(client: TestClient) -> None:
    told = client.post("/compare", json={"ids": [FIRST], "k": 8}).json()
    first, second = ([hit["id"] for hit in told[side]["results"]] for side in ("first", "second"))
    assert first != second
    for name in first:  # from the model of --against, the older one, to the one that is served
        change = told["changes"][name]
        assert change == (second.index(name) - first.index(name) if name in second else None)
    assert told["lost"] == [name for name in second if name not in first]
    assert told["shared"] == len(set(first) & set(second))
    upload = client.post("/compare", files={"files": encoded(draw_picture(3, 77))}, data={"query": '{"k": 4}'})
    assert len(upload.json()["second"]["results"]) == 4
    several = client.post("/compare", json={"ids": [FIRST, "class 0/0.png"]})
    assert (several.status_code, "one query" in several.text) == (422, True)


def test_items_by_id_and_a_sample(client: TestClient) -> None:
    one = client.get("/items", params={"id": FIRST}).json()["items"][0]
    assert (one["id"], one["label"]) == (FIRST, "class 2")
    assert len(client.get("/items").json()["items"]) == 48
    assert client.get("/items", params={"id": "nobody"}).status_code == 404
    assert client.get(one["thumbnail"], params={"size": 160}).headers["content-type"] == "image/webp"


def test_upsert_and_delete_by_picture_and_by_vector(admin: TestClient) -> None:
    before = admin.get("/ready").headers["x-tophit-index"]
    data = encoded(draw_picture(6, 99, side=64))
    items = json.dumps({"items": [{"id": "new/one", "metadata": {"label": "class 6", "price": 5}}]})
    made = admin.post("/items", files={"files": ("C:\\evil.png", data)}, data={"items": items})
    assert made.json()["written"] == 1
    assert made.json()["index"] != before
    assert ids(admin.post("/search", files={"files": data}))[0] == "new/one"
    item = admin.get("/items", params={"id": "new/one"}).json()["items"][0]
    assert admin.get(item["thumbnail"]).status_code == 200
    vector = [1.0] + 15 * [0.0]
    assert admin.post("/items", json={"items": [{"id": "v", "vector": vector}]}).json()["written"] == 1
    assert ids(admin.post("/search", json={"vectors": [vector], "k": 1})) == ["v"]
    library = admin.library  # type: ignore[attr-defined]
    assert len(list((library.own_folder / "images").iterdir())) == 1
    gone = admin.request("DELETE", "/items", json={"ids": ["new/one", "v", "nobody"]})
    assert gone.json()["deleted"] == 2
    assert not list((library.own_folder / "images").iterdir())
    assert admin.get(item["thumbnail"]).status_code == 404


def test_the_map_is_binary_and_its_points_are_items(client: TestClient) -> None:
    told = client.get("/map").json()
    while told["state"] != "ready":
        told = client.get("/map").json()
    data = client.get("/map/points").content
    assert (told["count"], len(data)) == (48, 48 * 10)
    points = np.array(struct.unpack_from("<96f", data)).reshape(48, 2)
    labels = struct.unpack_from("<48H", data, 48 * 8)
    assert np.abs(points).max() == pytest.approx(1)
    items = client.get("/map/items", params=[("row", 0), ("row", 17)]).json()["items"]
    assert [item["label"] for item in items] == [told["labels"][labels[0]], told["labels"][labels[17]]]
    assert client.get("/map/items", params={"row": 48}).status_code == 422
    assert client.get("/map/items", params={"row": 0, "map": told["map"]}).status_code == 200
    assert client.get("/map/points", params={"map": "an older one"}).status_code == 409


def test_the_worst_queries_are_those_of_the_evaluation(client: TestClient, served: Place) -> None:
    from tophit.evaluation import retrieval_metrics

    told = client.get("/worst").json()
    while told["state"] != "ready":
        told = client.get("/worst").json()
    with open_catalogue(served.index) as catalogue:
        items = list(catalogue.index.items())
    metrics = retrieval_metrics(np.stack([i.vector for i in items]), [i.metadata["label"] for i in items])
    values = metrics.per_query["mAP"]
    worst = items[int(np.argmin(values))]
    assert told["queries"][0]["query"]["id"] == worst.id[len(str(served.images)) + 1 :]
    assert told["queries"][0]["value"] == pytest.approx(values.min())
    assert told["metrics"]["recall@1"] == pytest.approx(metrics["recall@1"])
    first = told["queries"][0]
    assert all(hit["correct"] == (hit["label"] == first["query"]["label"]) for hit in first["results"])


def test_operations(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").status_code == 200
    client.post("/search", files={"files": encoded(draw_picture(0, 1))})
    text = client.get("/metrics").text
    assert 'tophit_requests_total{method="POST",route="/search",status="200"}' in text
    assert 'tophit_stage_seconds_count{stage="embed"}' in text
    assert "tophit_batch_images_count" in text
    assert "tophit_items 48" in text
    about = client.get("/about").json()
    assert (about["items"], about["against"]) == (48, "other")
    assert {field["name"] for field in about["fields"]} == {"label", "price", "number", "split"}


def test_the_openapi_has_every_route_with_examples(client: TestClient) -> None:
    told = client.get("/openapi.json").json()
    assert {"/search", "/items", "/compare", "/map", "/worst", "/health", "/ready", "/metrics"} <= set(told["paths"])
    body = told["paths"]["/search"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "multipart/form-data"}
    assert body["application/json"]["examples"]
    assert told["components"]["schemas"]["SearchRequest"]["properties"]["where"]["examples"]


def test_an_unknown_field_of_a_request_says_which_there_are(client: TestClient) -> None:
    answer = client.post("/search", json={"ids": ["class 1/0.png"], "wher": {}})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("wher: unknown field. Did you mean 'where'? Fields: ")


def test_a_filter_by_a_field_that_no_item_has_says_which_there_are(client: TestClient) -> None:
    for path in ("/search", "/compare"):
        answer = client.post(path, json={"ids": ["class 1/0.png"], "where": {"lable": "class 1"}})
        assert answer.status_code == 422
        said = answer.json()["error"]
        assert said == "No item has a field 'lable'. Did you mean 'label'? Fields: label, number, price, split."
    fine = client.post("/search", json={"ids": ["class 1/0.png"], "where": {"label": "nothing"}})
    assert (fine.status_code, fine.json()["queries"][0]["results"]) == (200, [])


def test_the_api_has_a_page_that_lists_every_route_and_says_where_its_description_is(client: TestClient) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    described = client.get("/openapi.json").json()
    for path, operations in described["paths"].items():
        for method in operations:
            assert f"<td>{method.upper()} {path}</td>" in page.text
    assert '<a href="/openapi.json">' in page.text
    assert "<script" not in page.text


def test_groups_are_the_catalogue_s_and_their_others_are_found_by_the_value(client: TestClient, served: Place) -> None:
    asked = {"ids": [FIRST], "k": 4, "group_by": "number", "where": {"price": {"gte": 10}}}
    answer = client.post("/search", json=asked)
    assert ids(answer) == expected(served, FIRST, 4, group_by="number", where={"price": {"gte": 10}})
    found = answer.json()["queries"][0]
    numbers = [hit["metadata"]["number"] for hit in found["results"]]
    assert len(set(numbers)) == 4
    assert found["stopped_at"] is None
    for hit, number in zip(found["results"], numbers, strict=True):
        members = client.post("/search", json={"ids": [FIRST], "k": 48, "where": {**asked["where"], "number": number}})
        assert ids(members)[0] == hit["id"]
        assert len(ids(members)) == 1 + hit["others"]
    assert "others" not in client.post("/search", json={"ids": [FIRST]}).json()["queries"][0]["results"][0]
    for wrong, words in (
        ({"group_by": "path"}, "reserved for the server"),
        ({"group_by": "nummer"}, "No item has a field 'nummer'"),
    ):
        refused = client.post("/search", json={"ids": [FIRST], **wrong})
        assert (refused.status_code, words in refused.json()["error"]) == (422, True), refused.text
    refused = client.post("/compare", json={"ids": [FIRST], "group_by": "number"})
    assert (refused.status_code, "item by item" in refused.text) == (422, True)


def test_a_search_for_groups_costs_no_more_than_limits_allow(served: Place) -> None:
    with client_of(served, limits=Limits(k=20)) as client:
        found = client.post("/search", json={"ids": [FIRST], "k": 8, "group_by": "label"}).json()["queries"][0]
        assert found["stopped_at"] == 20
        assert len(found["results"]) < 8


def test_words_by_http_are_the_catalogue_s(tmp_path: Path, served: Place, client: TestClient) -> None:
    embedder = tophit.load(tiny_towers("clip", tmp_path / "model"))
    rows = manifest_from_folder(served.images).rows
    build_catalogue(embedder, rows, tmp_path / "index")[0].close()
    with open_catalogue(tmp_path / "index") as catalogue:
        text = [hit.id for hit in catalogue.search_text(["red mug"], 4)[0]]
        mixed = catalogue.answer(
            CatalogueQuery([ItemId(str(served.images / FIRST))], text="red mug", text_weight=0.7, k=4)
        )
    with client_of(Place(tmp_path / "index", served.other, served.images)) as words:
        assert words.get("/about").json()["words"] is True
        answer = words.post("/search", json={"text": "red mug", "k": 4})
        assert [str(served.images / name) for name in ids(answer)] == text
        assert answer.json()["queries"][0]["query"] == {"kind": "text", "text": "red mug", "text_weight": 0.5}
        both = words.post("/search", json={"ids": [FIRST], "text": "red mug", "text_weight": 0.7, "k": 4})
        assert [str(served.images / name) for name in ids(both)] == [hit.id for hit in mixed[0]]
        for wrong in ({"text": ""}, {"text": " "}, {"text": "x" * 1001}, {"text": "red", "text_weight": 2}):
            assert words.post("/search", json=wrong).status_code == 422
    assert client.get("/about").json()["words"] is False
    refused = client.post("/search", json={"text": "red mug"})
    assert (refused.status_code, "no text tower" in refused.json()["error"]) == (422, True)


@pytest.mark.parametrize("count", [0, 7, 48, 84, 1000])
def test_the_sample_of_an_index_goes_from_its_first_to_its_last_items(count: int, tmp_path: Path) -> None:
    items = [Item(f"{number:04}", np.zeros(2, np.float32), {}) for number in range(count)]
    sample = [int(name) for name in survey(items, count, tmp_path).sample]
    assert len(sample) == min(48, count)
    steps = np.diff([-1, *sample])
    assert all(steps >= count // 48)
    assert all(steps <= max(1, -(-count // 48)))
