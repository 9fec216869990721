"""Paths and access: what is served to whom. The other limits are in test_limits.py."""

from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.serve.served import ADMIN, READ, Place, client_of, encoded
from typer.testing import CliRunner

from conftest import draw_picture
from tophit.cli import app
from tophit.errors import TophitError, UsageError
from tophit.serve.config import Limits
from tophit.serve.guard import Guard
from tophit.serve.metrics import Metrics
from tophit.serve.security import make_access, need_of, needs, read_tokens
from tophit.serve.served_pictures import seal, unseal

FIRST = "class 2/3.png"


def refused(answer: httpx.Response, status: int, words: str) -> None:
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"], answer.text


# Paths


def test_pictures_are_served_by_names_nobody_can_make_up(client: TestClient, served: Place) -> None:
    key = client.library.key  # type: ignore[attr-defined]
    name = seal(key, str(served.images / FIRST))
    assert unseal(key, name) == str(served.images / FIRST)
    assert client.get(f"/thumbnails/{name}").status_code == 200
    for wrong in (name[:-2] + "AA", "AAAA", "..%2f..%2fetc%2fpasswd", seal(b"x" * 32, str(served.images / FIRST)), "é"):
        assert client.get(f"/thumbnails/{wrong}").status_code == 404, wrong
    assert client.get("/page/../config.py").status_code == 404
    assert client.get("/page/%2e%2e/config.py").status_code == 404
    refused(client.get(f"/thumbnails/{name}", params={"size": 5000}), 422, "160, 320, 1024")


def test_a_path_outside_the_root_is_not_served(served_copy: Place, tmp_path: Path) -> None:
    from tophit.search.catalogue import open_catalogue

    outside = tmp_path / "outside.png"
    draw_picture(1, 1).save(outside)
    link = tmp_path / "inside"
    link.mkdir()
    (link / "link.png").symlink_to(outside)
    with open_catalogue(served_copy.index, writable=True) as catalogue:
        names = [str(outside), str(link / "link.png"), str(link / "gone.png")]
        catalogue.index.upsert(names, np.eye(16)[:3], [{"path": name, "label": "x"} for name in names])
    with client_of(served_copy, images=link) as client:
        for name in names:
            address = f"/thumbnails/{seal(client.library.key, name)}"  # type: ignore[attr-defined]
            assert client.get(address).status_code == 404


def test_a_client_can_not_name_a_file(admin: TestClient) -> None:
    for field in ("path", "box"):
        item = {"id": "x", "vector": [1.0] * 16, "metadata": {field: "/etc/passwd"}}
        refused(admin.post("/items", json={"items": [item]}), 422, f"'{field}' is reserved for the server")
    admin.post(
        "/items",
        files={"files": ("../../x.png", encoded(draw_picture(1, 1)))},
        data={"items": '{"items": [{"id": "a"}]}'},
    )
    stored = list((admin.library.own_folder / "images").iterdir())  # type: ignore[attr-defined]
    assert len(stored) == 1
    assert stored[0].suffix == ".webp"


def test_a_folder_of_images_that_is_not_there_is_refused_at_once(served: Place, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", str(served.index), "--images", str(tmp_path / "nothere")])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == f"--images: there is no folder {tmp_path / 'nothere'}."


# Access


def test_another_address_needs_a_token_of_32_bytes(tmp_path: Path, tokens: Path) -> None:
    with pytest.raises(UsageError, match=r"Others can reach 0\.0\.0\.0: give --token-file"):
        make_access("0.0.0.0", None)
    (tmp_path / "short").write_text("read tooshort\n")
    with pytest.raises(UsageError, match=r"line 1: the token has 8 bytes; it needs 32"):
        read_tokens(tmp_path / "short")
    (tmp_path / "bad").write_text("write " + "x" * 40)
    with pytest.raises(UsageError, match=r"expected 'read TOKEN' or 'admin TOKEN'"):
        read_tokens(tmp_path / "bad")
    access = make_access("0.0.0.0", tokens)
    assert not access.reading_is_open
    assert READ.encode() not in repr(access).encode()


def test_scopes(served_copy: Place, tokens: Path) -> None:
    item = {"items": [{"id": "x", "vector": [1.0] * 16}]}
    with client_of(served_copy, make_access("127.0.0.1", tokens), writable=True) as client:
        refused(client.get("/about"), 401, "token")
        refused(
            client.post("/search", json={"ids": [FIRST]}, headers={"authorization": f"Bearer {'x' * 40}"}), 401, "token"
        )
        read = {"authorization": f"Bearer {READ}"}
        assert client.post("/search", json={"ids": [FIRST]}, headers=read).status_code == 200
        refused(client.post("/items", json=item, headers=read), 403, "for reading only")
        assert client.post("/items", json=item, headers={"authorization": f"Bearer {ADMIN}"}).status_code == 200
        refused(client.post("/session", json={"token": "wrong"}), 401, "not valid")
        cookie = client.post("/session", json={"token": ADMIN}).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert client.get("/about").status_code == 200  # by the cookie
        refused(client.post("/items", json=item), 401, "token")  # which never writes
        assert client.get("/health").status_code == 200
    with client_of(served_copy) as client:
        refused(client.post("/items", json=item), 403, "started without an admin token")


def test_every_route_needs_what_it_always_needed(client: TestClient) -> None:
    routes = client.app._app.routes  # type: ignore[attr-defined]

    def need(method: str, path: str) -> tuple[str, bool]:
        found = need_of(routes, method, path)
        return found.scope, found.light

    for path in ("/", "/health", "/ready", "/openapi.json", "/favicon.ico", "/page/app.js"):
        assert need("GET", path) == ("public", True), path
    assert need("POST", "/session") == ("public", True)
    for path in ("/items", "/map", "/map/points", "/map/items", "/worst", "/thumbnails/x", "/uploads/x"):
        assert need("GET", path) == ("read", False), path
    assert need("GET", "/metrics") == need("GET", "/about") == ("read", True)
    assert need("POST", "/search") == need("POST", "/compare") == ("read", False)
    for method in ("POST", "DELETE", "PUT", "PATCH", "OPTIONS"):  # those without a route too
        assert need(method, "/items") == ("admin", False), method
    assert need("HEAD", "/items") == need("GET", "/nothing") == ("read", False)


def test_a_route_that_does_not_say_who_may_use_it_stops_the_server_from_starting() -> None:
    def guard(app: FastAPI) -> Guard:
        return Guard(app, Limits(), make_access("127.0.0.1", None), Metrics(), [], lambda: ("", ""))

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    guard(app)
    app.get("/declared")(needs("read")(lambda: None))
    app.post("/written")(needs("admin")(lambda: None))
    guard(app)
    app.get("/forgotten")(lambda: None)
    with pytest.raises(TophitError, match=r"The route /forgotten does not declare what it needs"):
        guard(app)
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.put("/open")(needs("read")(lambda: None))
    with pytest.raises(TophitError, match=r"The route /open \(PUT\) is open to read"):
        guard(app)


def test_host_and_origin_are_checked_and_there_is_no_cors(client: TestClient) -> None:
    refused(client.get("/about", headers={"host": "evil.example"}), 421, "--allow-host")
    refused(client.get("/about", headers={"host": "localhost:8000@evil"}), 421, "host")
    refused(client.get("/about", headers={"origin": "http://evil.example"}), 403, "other sites")
    refused(client.get("/about", headers={"origin": "null"}), 403, "other sites")
    good = client.get("/about", headers={"origin": "http://localhost:8000"})
    assert good.status_code == 200
    assert not [name for name in good.headers if name.startswith("access-control")]
    assert client.options("/search", headers={"origin": "http://localhost:8000"}).status_code == 405


@pytest.mark.parametrize("path", ["/", "/about", "/nothing", "/page/app.js", "/search"])
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-tophit-model"]
    assert headers["x-tophit-index"]
    assert headers["server-timing"]


def test_a_wrong_token_is_not_called_a_missing_one(served_copy: Place, tokens: Path) -> None:
    with client_of(served_copy, make_access("127.0.0.1", tokens)) as made:
        missing, wrong = (made.get("/about", headers=each) for each in ({}, {"authorization": "Bearer nonsense"}))
    assert (missing.status_code, wrong.status_code) == (401, 401)
    assert missing.json()["error"].startswith("This needs a token")
    assert wrong.json()["error"] == "This token is not valid."
