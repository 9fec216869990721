"""Passwords and tokens go only to addresses that the user named, and never to disk.

A catalogue is a folder that anyone may have made, and it names the address of its server. So an address that comes
from its file alone gets nothing from the environment. An address is the user's own if it was given to a command (which
is remembered, the address alone, in ``addresses.json`` of the user's settings) or in ``TOPHIT_CREDENTIALS_FOR``.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tophit.errors import TophitError, UsageError
from tophit.files import settings_folder, write_json
from tophit.search.backend import BackendFacts, backend_facts

VARIABLE = "TOPHIT_CREDENTIALS_FOR"
_SECRET = re.compile(
    r"(pass(word|wd|phrase|code)?|pwd|token|secret|credentials?|(api|access|secret)[ _-]?key)\s*=", re.I
)
_MOST_DECODED = 10


def remember_address(location: str) -> None:
    """Remember that the user named an address; if that can't be written, the variable is needed next time."""
    known = _remembered()
    if location not in known:
        with suppress(OSError, TophitError):
            path = _path()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"addresses": [*known, location]})


def is_named(location: str) -> bool:
    """Return whether the user named an address: in the environment, or in an earlier command."""
    return location in os.environ.get(VARIABLE, "").split() or location in _remembered()


def credentials(backend: str, location: str) -> dict[str, Any]:
    """Return the options that open an address: what the environment holds for it, if the user named it."""
    facts = backend_facts(backend)
    if is_named(location):
        return from_environment(facts)
    return dict(facts.without_credentials)


def from_environment(facts: BackendFacts) -> dict[str, str]:
    """Return the options that come from environment variables and are never written to disk."""
    return {option: os.environ[name] for option, name in facts.secrets.items() if os.environ.get(name)}


def withheld(backend: str, location: str) -> str:
    """Return a sentence about what was not sent to an address, and how to send it; nothing if all was sent."""
    facts = backend_facts(backend)
    variables = [name for name in (*facts.secrets.values(), *facts.read_by_itself) if os.environ.get(name)]
    if not variables or is_named(location):
        return ""
    return (
        f"{' and '.join(variables)} was not sent: the address {shown(location)} comes from the index alone, and you "
        f"have not named it on this machine. If it is yours, set {VARIABLE} to it."
    )


def refuse_password(facts: BackendFacts, location: str) -> None:
    """Refuse a password in an address, in any spelling, because the catalogue keeps the address on disk."""
    text = _decoded(location)
    user = text.split("://", 1)[-1].rsplit("@", 1)
    if (len(user) == 2 and ":" in user[0] and not user[0].endswith(":")) or _SECRET.search(text):
        variables = " or ".join(f"the environment variable {variable}" for variable in facts.secrets.values())
        raise UsageError(
            "Leave the password out of the address, which is written to disk; "
            f"give it in {facts.password or variables or 'the environment'}."
        )


def shown(location: str) -> str:
    """Return an address without what may be a password."""
    return re.sub(r"//[^@/]*@", "//", location)


def _decoded(location: str) -> str:
    """Undo percent-encoding, however often it was done."""
    for _ in range(_MOST_DECODED):
        plain = unquote(location)
        if plain == location:
            return plain
        location = plain
    raise UsageError(f"The address is percent-encoded more than {_MOST_DECODED} times; write it plainly.")


def _remembered() -> list[str]:
    try:
        content: Mapping[str, Any] = json.loads(_path().read_text(encoding="utf-8"))
        return [str(each) for each in content["addresses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _path() -> Path:
    return settings_folder() / "addresses.json"
