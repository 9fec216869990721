"""Weights from the web: a server in this process stands for the hub, which tests can't reach."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer

import pytest
import torch

from tophit import registry
from tophit.errors import TophitError
from tophit.images.preprocessing import Preprocessing
from tophit.models import register_backbone
from tophit.models.backbones import build_backbone
from tophit.models.small_net import SmallNet
from tophit.models.weights import PublishedFile, fetch


class Server(BaseHTTPRequestHandler):
    """Serves ``content``; with ``cut`` it closes the connection after so many bytes."""

    content = b""
    cut: int | None = None
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200 if self.path.endswith(".pth") else 404)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[: self.cut])

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Server], str]]:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "cache"))
    kind = type("Own", (Server,), {})
    listening = TCPServer(("127.0.0.1", 0), kind)  # HTTPServer asks for its host's name first, which takes seconds
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield kind, f"http://127.0.0.1:{listening.server_address[1]}"
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_a_file_is_fetched_once_checked_and_loaded(
    server: tuple[type[Server], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = server
    torch.save(SmallNet().state_dict(), tmp_path / "net.pth")
    kind.content = (tmp_path / "net.pth").read_bytes()
    prefix = hashlib.sha256(kind.content).hexdigest()[:8]
    monkeypatch.setitem(registry._registered, ("backbone", "mine"), registry.Entry("backbone", "mine", "", ""))
    register_backbone("mine", Preprocessing(), PublishedFile(f"{url}/net-{prefix}.pth", prefix))(SmallNet)
    expected = torch.load(tmp_path / "net.pth", weights_only=True)
    for _ in range(2):
        loaded = build_backbone("mine").state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in expected.items())
    assert kind.asked == 1


def test_progress_counts_the_blocks_of_the_download(server: tuple[type[Server], str]) -> None:
    kind, url = server
    kind.content = b"x" * (2_500_000)
    totals: list[int] = []
    file = PublishedFile(f"{url}/a.pth", hashlib.sha256(kind.content).hexdigest())

    def progress(items, total):
        totals.append(total)
        return items

    assert fetch(file, progress).read_bytes() == kind.content
    assert totals == [3]


@pytest.mark.parametrize(
    ("cut", "reason"), [(None, r"SHA-256 starts with [0-9a-f]{8}, not with 00000000"), (3, "bytes")]
)
def test_a_wrong_or_interrupted_download_leaves_nothing(
    server: tuple[type[Server], str], cut: int | None, reason: str, tmp_path: Path
) -> None:
    kind, url = server
    kind.content, kind.cut = b"something else", cut
    with pytest.raises(TophitError, match=reason):
        fetch(PublishedFile(f"{url}/net-00000000.pth", "00000000"))
    assert list((tmp_path / "cache" / "weights").iterdir()) == []


def test_offline_says_what_to_download_and_where_to_put_it(
    server: tuple[type[Server], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kind, url = server
    kind.content = b"right"
    file = PublishedFile(f"{url}/net.pth", hashlib.sha256(b"right").hexdigest()[:8])
    help_text = rf"download {url}/net\.pth and save it as {tmp_path}/cache/weights/net\.pth"
    monkeypatch.setenv("TOPHIT_OFFLINE", "1")
    with pytest.raises(TophitError, match=help_text):
        fetch(file)
    monkeypatch.setenv("TOPHIT_OFFLINE", "0")
    with pytest.raises(TophitError, match="download failed: Not Found"):
        fetch(PublishedFile(f"{url}/missing", "00"))
    with pytest.raises(TophitError, match=r"download failed: .*refused"):
        fetch(PublishedFile("http://127.0.0.1:9/net.pth", "00"))
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(b"right")
    monkeypatch.setenv("TOPHIT_OFFLINE", "1")
    assert fetch(file) == file.path
    file.path.write_bytes(b"wrong")
    with pytest.raises(TophitError, match="is not the published file"):
        fetch(file)
