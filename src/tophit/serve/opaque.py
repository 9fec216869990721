"""Names of items for addresses: they tell nothing, can't be made up, and need no table.

The name is a keyed digest of the id followed by the id under a mask that the digest and the key make (a synthetic
initialisation vector). The same id has the same name as long as the key is kept.
"""

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path

_DIGEST = 16
_MOST = 4096


def seal(key: bytes, text: str) -> str:
    """Return the opaque name of an id."""
    data = text.encode()
    digest = _digest(key, data)
    return base64.urlsafe_b64encode(digest + _masked(key, digest, data)).rstrip(b"=").decode()


def unseal(key: bytes, name: str) -> str | None:
    """Return the id behind an opaque name, or None for a name that was not made with this key."""
    if len(name) > _MOST:
        return None
    try:
        raw = base64.urlsafe_b64decode(name.encode("ascii") + b"=" * (-len(name) % 4))
    except ValueError:
        return None
    digest, data = raw[:_DIGEST], _masked(key, raw[:_DIGEST], raw[_DIGEST:])
    if not hmac.compare_digest(digest, _digest(key, data)):
        return None
    return data.decode()


def kept_key(path: Path) -> bytes:
    """Return the key in a file, made at the first call; where it can't be written, a key for this process only."""
    try:
        if path.is_file() and len(key := path.read_bytes()) == 32:
            return key
        key = secrets.token_bytes(32)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
        return key
    except OSError:
        return secrets.token_bytes(32)


def _digest(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, b"name" + data, "sha256")[:_DIGEST]


def _masked(key: bytes, digest: bytes, data: bytes) -> bytes:
    mask = hashlib.shake_256(key + b"mask" + digest).digest(len(data))
    return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(len(data))  # as numbers: byte by byte is slow
