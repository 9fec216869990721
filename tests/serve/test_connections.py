"""Connections that cost the server more than their client: half a header, an endless one, answers that nobody reads."""

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from tests.serve.served import ADMIN, Place, Server

from tophit.serve.config import Limits
from tophit.serve.connections import Connections

HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
POST = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(served: Place) -> Iterator[Server]:
    """A server with short times and few connections of a client."""
    limits = ("header_seconds=2", "write_seconds=1", "client_connections=20", "queue=2")
    made = Server(served.index, *(word for each in limits for word in ("--limit", each)))
    yield made
    made.stop()


def connected(server: Server, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    made.sendall(sent)
    return made


def until_closed(connection: socket.socket) -> bytes:
    """Return what a server says before it closes a connection; a server that doesn't close it makes this time out."""
    said = b""
    with connection:
        try:
            while more := connection.recv(65_536):
                said += more
        except ConnectionResetError:
            pass
    return said


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def open_connections(server: Server) -> int:
    found = re.search(r"(?m)^tophit_connections (\S+)", httpx.get(f"{server.url}/metrics").text)
    assert found is not None
    return round(float(found.group(1)))


def test_half_headers_are_closed_and_others_are_answered_meanwhile(server: Server) -> None:
    many = [connected(server, HALF) for _ in range(60)]
    answer = httpx.get(f"{server.url}/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})
    silent = connected(server)
    said = [until_closed(each) for each in many]
    assert sum(each == b"" for each in said) >= 40  # at once, to make room
    late = [each for each in said if each]
    assert all(b" 408 " in each and b"took longer than 2 seconds" in each for each in late)
    assert until_closed(silent) == b""


@pytest.mark.parametrize("pieces", [1, 50])
def test_headers_are_refused_where_they_get_too_large(server: Server, pieces: int) -> None:
    connection = connected(server, HALF)
    try:
        for _ in range(pieces):
            connection.sendall(b"x" * (1_000_000 // pieces))
    except (ConnectionResetError, BrokenPipeError):
        pass  # closed while we were still sending
    said = until_closed(connection)
    if said:
        head, body = said.split(b"\r\n\r\n", 1)
        assert b" 431 " in head
        assert json.loads(body) == {"error": "The headers are larger than 65,536 bytes."}


def test_what_surrounds_a_body_is_counted_too(server: Server) -> None:
    """Chunk extensions and trailers are neither headers nor body, and could go on for ever."""
    head = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    for endless in (b"1;x=" + b"y" * 500_000, b"2\r\n{}\r\n0\r\nX-Trailer: " + b"y" * 500_000):
        connection = connected(server, head)
        try:
            for start in range(0, len(endless), 50_000):
                connection.sendall(endless[start : start + 50_000])
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert b" 200 " not in until_closed(connection)


def test_what_is_not_http_is_answered_in_json(server: Server) -> None:
    said = until_closed(connected(server, b"\x16\x03\x01 nonsense\r\n\r\n"))
    assert b" 400 " in said
    assert "error" in json.loads(said.split(b"\r\n\r\n", 1)[1])


def test_a_body_that_dribbles_takes_nobody_s_place(server: Server) -> None:
    head = POST + b"Content-Length: 1000\r\n\r\n{"
    slow = [connected(server, head) for _ in range(4)]  # the queue has 2 places
    wait_for(lambda: open_connections(server) >= 5)
    answer = httpx.post(f"{server.url}/search", json={"ids": ["class 2/3.png"]})
    assert answer.status_code == 200, answer.text
    for each in slow:
        each.close()


def test_a_client_that_does_not_read_is_cut_off(server: Server) -> None:
    wait_for(lambda: open_connections(server) == 1)  # its own, that asks
    body = json.dumps({"vectors": [[1.0] * 15 + [n / 1000] for n in range(1000)], "k": 48}).encode()
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.settimeout(30)
        lazy.connect(("127.0.0.1", server.port))
        lazy.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        head = lazy.recv(1000)
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length is not None, head
        wait_for(lambda: open_connections(server) == 1)
        assert len(head) + len(until_closed(lazy)) < int(length.group(1))


def test_unread_answers_are_limited_in_all() -> None:
    class Client:
        is_idle = False

        def __init__(self, unread: int) -> None:
            self.address, self.unread_bytes, self.was_cut = f"client {unread}", unread, False

        def cut(self) -> None:
            self.was_cut = True

    register = Connections(Limits(unread_bytes=100))
    clients = [Client(60), Client(30), Client(50)]
    for each in clients:
        assert register.admit(each)
        register.fills(each)
    assert [each.was_cut for each in clients] == [True, False, False]  # the one that waits longest
    assert len(register) == 2


def test_tls_without_a_proxy(served_copy: Place, serve, tokens: Path, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    options = ("--certificate", certificate, "--key", key, "--token-file", tokens)
    server = serve(served_copy.index, *options, certificate=certificate)
    with httpx.Client(base_url=server.url, verify=server.context) as client:
        headers = {"authorization": f"Bearer {ADMIN}"}
        assert client.get("/about", headers=headers).status_code == 200
        cookie = client.post("/session", json={"token": ADMIN}).headers["set-cookie"]
        assert "Secure" in cookie
    silent = connected(server)  # no handshake
    silent.close()


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
