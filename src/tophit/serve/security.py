"""Who may do what: what each route needs, tokens with scopes, trusted hosts and origins, headers for browsers."""

import base64
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, Literal, TypeVar

from tophit.errors import TophitError, UsageError
from tophit.serve.problems import Problem

COOKIE = "tophit_token"
_LEAST_BYTES = 32
_KEY_BYTES = 32
_SCOPES = ("read", "admin")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_DECLARED = "tophit_need"
Scope = Literal["public", "read", "admin"]
Endpoint = TypeVar("Endpoint")


@dataclass(frozen=True)
class Need:
    """What a route needs: a scope; whether it is light, so that it is answered by a busy server too.

    ``by_first``: of several processes, the first answers, such as with what should be made only once.
    """

    scope: Scope = "read"
    light: bool = False
    changes_nothing: bool = False
    by_first: bool = False


def needs(
    scope: Scope, *, light: bool = False, changes_nothing: bool = False, by_first: bool = False
) -> Callable[[Endpoint], Endpoint]:
    """Declare what an endpoint needs; every route must. Anything but GET needs ``admin``, unless it changes nothing."""

    def declare(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _DECLARED, Need(scope, light or scope == "public", changes_nothing, by_first))
        return endpoint

    return declare


def check_needs(routes: Iterable[Any]) -> None:
    """Refuse an application with a route that does not declare its need, or that lets readers write."""
    for route in routes:
        need = _declared(route)
        methods = set(getattr(route, "methods", None) or ()) - {"GET", "HEAD"}
        if need is None:
            raise TophitError(f"The route {route.path} does not declare what it needs: add @needs(...) to it.")
        if methods and need.scope != "admin" and not need.changes_nothing:
            raise TophitError(
                f"The route {route.path} ({', '.join(sorted(methods))}) is open to {need.scope}: declare "
                "@needs('admin'), or changes_nothing=True if it changes nothing."
            )


def need_of(routes: Sequence[Any], method: str, path: str) -> Need:
    """Return what a request needs: its route's need; the strictest of the path if its method has no route."""
    method = "GET" if method == "HEAD" else method
    found = [route for route in routes if route.path_regex.match(path)]
    fitting = [route for route in found if method in (getattr(route, "methods", None) or {method})]
    declared = [_declared(route) or Need("admin") for route in fitting[:1] or found]
    return max(declared, key=lambda need: ("public", "read", "admin").index(need.scope), default=Need())


def fixed_needs(routes: Sequence[Any]) -> dict[tuple[str, str], Need]:
    """Return what requests need whose path has no parameter, by method and path: most need not be looked for."""
    paths = [route.path for route in routes if "{" not in route.path and getattr(route, "methods", None)]
    return {
        (method, path): need_of(routes, method, path) for path in paths for method in ("GET", "HEAD", "POST", "DELETE")
    }


def _declared(route: Any) -> Need | None:
    return getattr(getattr(route, "endpoint", None) or route.app, _DECLARED, None)


@dataclass(frozen=True)
class Token:
    """What is kept of a token: its scope, digest, the name of who holds it, and how many requests a second it may make.

    Without a name it is called by its scope and the start of its digest.
    """

    scope: str
    digest: bytes
    name: str
    rate: float | None = None


@dataclass(frozen=True)
class Access:
    """The tokens, whether reading needs one, and the host names that are accepted."""

    tokens: tuple[Token, ...] = ()
    reading_is_open: bool = True
    hosts: tuple[str, ...] = _LOOPBACK_NAMES
    any_address: bool = False
    """Accept any IP address: for a server that is bound to all of them."""

    @property
    def has_admin(self) -> bool:
        """Whether anyone may write."""
        return any(token.scope == "admin" for token in self.tokens)

    def find(self, given: str) -> Token | None:
        """Return the token that someone gave, if it is known; every token is compared, each in constant time."""
        digest = hashlib.sha256(given.encode(errors="replace")).digest()
        found = [token for token in self.tokens if hmac.compare_digest(digest, token.digest)]
        return max(found, key=lambda token: token.scope == "admin", default=None)

    def check(self, scope: Scope, headers: dict[str, str]) -> Token | None:
        """Return the token in a request's headers, if any; raise a Problem unless they allow a scope."""
        kind, _, text = headers.get("authorization", "").partition(" ")
        given = text.strip() if kind.lower() == "bearer" else ""
        if not given and scope != "admin":  # a cookie reads, but never writes
            given = cookie_token(headers.get("cookie", ""))
        token = self.find(given) if given else None
        if scope == "public" or (scope == "read" and (self.reading_is_open or token)):
            return token
        if token is not None and token.scope == "admin":
            return token
        if scope == "admin" and not self.has_admin:
            raise Problem(403, "This server accepts no changes: it was started without an admin token.")
        if token is not None:
            raise Problem(403, "This token is for reading only; changes need an admin token.")
        if given:
            raise Problem(401, "This token is not valid.", {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        raise Problem(401, "This needs a token: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})

    def check_host(self, headers: dict[str, str]) -> None:
        """Raise a Problem if the request was meant for another host or comes from another site's page."""
        host = headers.get("host", "")
        name = _host_name(host)
        if name not in self.hosts and not (self.any_address and _is_address(name)):
            raise Problem(421, "This server does not answer for that host name; --allow-host adds it.")
        origin = headers.get("origin")
        if origin is not None and re.sub(r"^https?://", "", origin.lower()) != host.lower():
            raise Problem(403, "Pages of other sites can't use this server.")


def make_access(host: str, token_file: Path | None, allow_hosts: Iterable[str] = ()) -> Access:
    """Return who may do what on a server that is bound to an address; one that others can reach must have a token."""
    tokens = read_tokens(token_file) if token_file is not None else ()
    loopback = is_loopback(host)
    if not loopback and not tokens:
        raise UsageError(
            f"Others can reach {host}: give --token-file, a file with lines like 'read TOKEN' and 'admin TOKEN', each "
            f"token of {_LEAST_BYTES} bytes or more; or stay on 127.0.0.1."
        )
    reading_is_open = loopback and not any(token.scope == "read" for token in tokens)
    everywhere = host in ("0.0.0.0", "::", "")
    hosts = {*_LOOPBACK_NAMES, *(name.lower() for name in allow_hosts)} | (set() if everywhere else {host.lower()})
    return Access(tokens, reading_is_open, tuple(sorted(hosts)), everywhere)


def read_tokens(path: Path) -> tuple[Token, ...]:
    """Read a file of tokens and keep only their digests.

    A line is ``read TOKEN`` or ``admin TOKEN``, then a name and a rate such as ``20/s`` if wanted.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {path} can't be read: {error}.") from None
    tokens: list[Token] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if not 2 <= len(words) <= 4 or words[0] not in _SCOPES:
            raise UsageError(
                f"{path}, line {number}: expected 'read TOKEN' or 'admin TOKEN', then a name and a rate like 20/s if "
                "wanted."
            )
        if len(words[1].encode()) < _LEAST_BYTES:
            raise UsageError(
                f"{path}, line {number}: the token has {len(words[1].encode())} bytes; it needs {_LEAST_BYTES}. "
                'Make one with: python -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        tokens.append(_token(words, f"{path}, line {number}"))
    if not tokens:
        raise UsageError(f"The token file {path} holds no token.")
    return tuple(tokens)


def _token(words: list[str], where: str) -> Token:
    """Read a line's words: scope, token, and a name and a rate in any order."""
    digest = hashlib.sha256(words[1].encode()).digest()
    rates = [word for word in words[2:] if word.endswith("/s")]
    names = [word for word in words[2:] if not word.endswith("/s")]
    if len(rates) > 1 or len(names) > 1 or (rates and not re.fullmatch(r"[0-9]*\.?[0-9]+/s", rates[0])):
        raise UsageError(f"{where}: after the token come a name and a rate like 20/s, one of each.")
    rate = float(rates[0].removesuffix("/s")) if rates else None
    if rate == 0:
        raise UsageError(f"{where}: a rate is above 0.")
    return Token(words[0], digest, names[0] if names else f"{words[0]}-{digest.hex()[:8]}", rate)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def cookie_token(text: str) -> str:
    """Return the token in a Cookie header, or nothing."""
    try:
        found = SimpleCookie(text).get(COOKIE)
    except Exception:  # a malformed cookie is no cookie
        return ""
    return found.value if found else ""


def kept_key(path: Path) -> bytes:
    """Return the key in a file, which is created if missing; if it can't be written, a key for this process only."""
    try:
        if path.is_file() and len(key := path.read_bytes()) == _KEY_BYTES:
            return key
        key = secrets.token_bytes(_KEY_BYTES)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
        return key
    except OSError:
        return secrets.token_bytes(_KEY_BYTES)


def security_headers(scripts: Collection[str]) -> list[tuple[bytes, bytes]]:
    """Return the security headers of every answer; the page's inline scripts are allowed by their hashes."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(["'self'", *(f"'sha256-{value}'" for value in hashes)])
    policy = (
        f"default-src 'self'; script-src {allowed}; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    ]


def _host_name(host: str) -> str:
    """Return a Host header's name without its port, in lower case."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/@\s]+)(:[0-9]{1,5})?", host)
    return match.group(1).strip("[]").lower() if match else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
