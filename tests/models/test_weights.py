"""Weights from the web: a server in this process stands for the hub, which tests can't reach."""

import hashlib
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from ipaddress import IPv4Address
from pathlib import Path
from socketserver import TCPServer

import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tophit import registry
from tophit.errors import TophitError
from tophit.images.preprocessing import Preprocessing
from tophit.models import register_backbone
from tophit.models.backbones import build_backbone
from tophit.models.small_net import SmallNet
from tophit.models.weights import PublishedFile, fetch


class Server(BaseHTTPRequestHandler):
    """Serves ``content``; with ``cut`` it closes the connection after so many bytes, or it sends clients elsewhere."""

    content = b""
    cut: int | None = None
    elsewhere = ""
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(302 if self.elsewhere else 200 if self.path.endswith(".pth") else 404)
        if self.elsewhere:
            self.send_header("Location", self.elsewhere)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[: self.cut])

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def certificate(path: Path) -> Path:
    """Write a certificate for 127.0.0.1 with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(key.private_bytes(*plain) + made.public_bytes(Encoding.PEM))
    return path


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[type[Server], str]]:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "cache"))
    kind = type("Own", (Server,), {})
    listening = TCPServer(("127.0.0.1", 0), kind)  # HTTPServer asks for its host's name first, which takes seconds
    own = certificate(tmp_path / "own.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield kind, f"https://127.0.0.1:{listening.server_address[1]}"
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_a_file_is_fetched_once_checked_and_loaded(
    server: tuple[type[Server], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, url = server
    torch.save(SmallNet().state_dict(), tmp_path / "net.pth")
    kind.content = (tmp_path / "net.pth").read_bytes()
    digest = hashlib.sha256(kind.content).hexdigest()
    monkeypatch.setitem(registry._registered, ("backbone", "mine"), registry.Entry("backbone", "mine", "", ""))
    register_backbone("mine", Preprocessing(), PublishedFile(f"{url}/net.pth", digest))(SmallNet)
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
    ("cut", "reason"), [(None, r"SHA-256 starts with [0-9a-f]{64}, not with 00000000"), (3, "bytes")]
)
def test_a_wrong_or_interrupted_download_leaves_nothing(
    server: tuple[type[Server], str], cut: int | None, reason: str, tmp_path: Path
) -> None:
    kind, url = server
    kind.content, kind.cut = b"something else", cut
    with pytest.raises(TophitError, match=reason):
        fetch(PublishedFile(f"{url}/net.pth", "0" * 64))
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
        fetch(PublishedFile(f"{url}/missing", "0" * 64))
    with pytest.raises(TophitError, match=r"download failed: .*refused"):
        fetch(PublishedFile("https://127.0.0.1:9/net.pth", "0" * 64))
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(b"right")
    monkeypatch.setenv("TOPHIT_OFFLINE", "1")
    assert fetch(file) == file.path
    file.path.write_bytes(b"wrong")
    with pytest.raises(TophitError, match="is not the published file"):
        fetch(file)


def test_nothing_is_downloaded_without_https_and_the_whole_sha256(server: tuple[type[Server], str]) -> None:
    kind, url = server
    kind.content = b"weights"
    whole = hashlib.sha256(kind.content).hexdigest()
    for file in (
        PublishedFile(f"{url.replace('https', 'http')}/a.pth", whole),
        PublishedFile(f"{url}/a.pth", whole[:8]),
        PublishedFile(f"{url}/a.pth", hashlib.sha1(kind.content).hexdigest(), algorithm="sha1"),
    ):
        with pytest.raises(TophitError, match=r"only by https, .* whole SHA-256 .*: download .*/a.pth and save it as"):
            fetch(file)
        assert kind.asked == 0
    kind.elsewhere = "http://127.0.0.1:9/a.pth"
    with pytest.raises(TophitError, match=r"redirected to http://127.0.0.1:9/a.pth, which is not https"):
        fetch(PublishedFile(f"{url}/a.pth", whole))


def test_every_registered_file_that_is_downloaded_has_its_whole_digest() -> None:
    """The others are named with their address, and the digits that their publishers state are checked."""
    from tophit.models import densenet, googlenet_bn, resnet  # noqa: F401  (they register)

    files = [
        entry.told()["spec"].pretrained.__self__
        for (kind, _), entry in registry._registered.items()
        if kind == "backbone" and isinstance(getattr(_reader(entry), "__self__", None), PublishedFile)
    ]
    assert {file.name for file in files if file.can_be_checked} >= {"resnet50-0676ba61.pth", "googlenet-1378be20.pth"}
    for file in files:
        published = file.name.removesuffix(".pth").rsplit("-", 1)[-1]
        assert file.algorithm == "sha1" or file.digest.startswith(published)


def _reader(entry: registry.Entry) -> object:
    return getattr(entry.told().get("spec"), "pretrained", None)
