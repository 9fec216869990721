"""Attack a server of one's own on 127.0.0.1, and see whether it keeps its promises (docs/security.md).

    python -m benchmarks.attack                 # every attack once: about three minutes
    python -m benchmarks.attack slow-headers    # one of them
    python -m benchmarks.attack --load 10       # 200 clients and writers, ten minutes with attackers beside them

It starts the server itself and connects to nothing else. The attacker's address is 127.0.0.2 (Linux).
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.attack import attacks
from benchmarks.attack.attacks import Seen
from benchmarks.attack.load import run_load
from benchmarks.attack.target import Target, make_index

SIMPLE: dict[str, Callable[[Target], Seen]] = {
    "slow-headers": attacks.slow_headers,
    "endless-headers": attacks.endless_headers,
    "slow-bodies": attacks.slow_bodies,
    "many-values": attacks.many_values,
    "lazy-readers": attacks.lazy_readers,
    "killed-decoders": attacks.killed_decoders,
    "mutated-pictures": attacks.mutated_pictures,
    "odd-requests": attacks.odd_requests,
    "guessed-tokens": attacks.guessed_tokens,
}
IMPATIENT: dict[str, Callable[[Target], Seen]] = {
    "abandoned-searches": attacks.abandoned_searches,
    "stop": attacks.stop_in_the_middle,
}
LIMITS = ("request_seconds=2", "drain_seconds=2", "notice_seconds=0.5")


def run(name: str, folder: Path) -> Seen:
    """Start a server and attack it in one way."""
    if name == "upload-and-restart":
        return attacks.upload_and_restart(folder, lambda: Target(folder))
    impatient = [word for each in LIMITS for word in ("--limit", each)] if name in IMPATIENT else []
    if name == "stop":
        impatient = impatient[2:]
    target = Target(folder, *impatient)
    try:
        return (SIMPLE | IMPATIENT)[name](target)
    finally:
        target.stop()


def main() -> None:
    """Run the attacks that were asked for."""
    names = [*SIMPLE, *IMPATIENT, "upload-and-restart"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attack", nargs="*", help=f"one or more of {', '.join(names)}; none: all")
    parser.add_argument("--load", type=float, metavar="MINUTES", help="the load test, with attackers for so long")
    arguments = parser.parse_args()
    console = Console()
    if unknown := set(arguments.attack) - set(names):
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.load:
            console.print_json(data=run_load(folder, make_index(folder, 30_000), arguments.load))
            return
        make_index(folder, 49_000, same=45_000)
        table = Table("attack", "tried", "held", "seen")
        for each in arguments.attack or names:
            seen = run(each, folder)
            table.add_row(each, seen.tried, "yes" if seen.held else "[bold red]NO", seen.words)
            console.print(each, "held" if seen.held else "DID NOT HOLD", seen.words, highlight=False)
        console.print(table)


if __name__ == "__main__":
    main()
