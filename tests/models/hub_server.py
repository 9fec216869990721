"""A server that speaks as much of the Hugging Face Hub as its client needs to upload and download small files."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

TOKEN = "hf_of_the_tests"


@dataclass
class Hub:
    """What was uploaded: per repository its commits, oldest first, each with all its files."""

    address: str = ""
    private: dict[str, bool] = field(default_factory=dict)
    commits: dict[str, list[tuple[str, dict[str, bytes]]]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def files(self, name: str, revision: str = "main") -> tuple[str, dict[str, bytes]] | None:
        known = self.commits.get(name, [])
        if revision == "main":
            return known[-1] if known else None
        return next((commit for commit in known if commit[0] == revision), None)


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(self.path.partition("?")[0])
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
                commit = hub.files(found[1], found[2] or "main")
                if commit is None:
                    return self._missing(found[1])
                siblings = [{"rfilename": name, "size": len(data)} for name, data in commit[1].items()]
                return self._json({"id": found[1], "sha": commit[0], "siblings": siblings, "tags": []})
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+).*", path):
                commit = hub.files(found[1], found[2])
                if commit is None:
                    return self._missing(found[1])
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in commit[1].items()
                ]
                return self._json(tree)
            if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                return self._file(*found.groups())
            return self._json({"error": f"not spoken here: {path}"}, 404)

        do_HEAD = do_GET  # noqa: N815

        def do_POST(self) -> None:
            body = self._body()
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self._json({"error": "Invalid username or password."}, 401)
            if self.path == "/api/repos/create":
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
                known = name in hub.commits
                hub.commits.setdefault(name, [])
                hub.private.setdefault(name, asked.get("visibility") == "private" or bool(asked.get("private")))
                return self._json({"url": f"{hub.address}/{name}", "name": name}, 409 if known else 200)
            if self.path == "/api/validate-yaml":
                return self._json({"errors": [], "warnings": []})
            if re.fullmatch(r"/api/models/[^/]+/[^/]+/preupload/main", self.path):
                files = [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for each in json.loads(body)["files"]
                ]
                return self._json({"files": files})
            if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", self.path):
                return self._commit(found[1], [json.loads(line) for line in body.splitlines()])
            return self._json({"error": f"not spoken here: {self.path}"}, 404)

        def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
            before = hub.files(name)
            files = dict(before[1]) if before else {}
            for line in lines:
                if line["key"] == "header":
                    hub.messages.append(line["value"]["summary"])
                else:
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            made = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
            hub.commits[name].append((made, files))
            self._json({"commitUrl": f"{hub.address}/{name}/commit/{made}", "commitOid": made, "success": True})

        def _file(self, name: str, revision: str, path: str) -> None:
            commit = hub.files(name, revision)
            if commit is None or path not in commit[1]:
                return self._missing(name)
            data = commit[1][path]
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit[0])
            return self._send(data)

        def _missing(self, name: str) -> None:
            code = "RevisionNotFound" if hub.commits.get(name) else "RepoNotFound"
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self._send(b"{}")

        def _json(self, value: Any, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self._send(json.dumps(value).encode())

        def _send(self, data: bytes) -> None:
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def log_message(self, *arguments: Any) -> None:
            """Stay silent."""

    return Handler


@contextmanager
def serve_hub() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
