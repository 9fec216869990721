"""Test the five papers' claims in three regimes.

    python -m benchmarks.claims run --data FOLDER --out runs/claims --hours 2     # go on with the plan
    python -m benchmarks.claims list                                              # what is done, what is left
    python -m benchmarks.claims page                                              # write docs/claims.md

``run`` does what is missing, in the order of the plan, and keeps each result as a small file in
benchmarks/claims/results. Kill it at any time: it continues at its last checkpoint, and nothing is run twice. Several
processes may share --out. The layout of --data is in benchmarks/claims/sets.py.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.claims.sets import SETS
from tophit.errors import TophitError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="do what is missing")
    run.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    run.add_argument("--out", type=Path, required=True, help="the folder of runs in progress and caches")
    run.add_argument("--hours", type=float, default=2.0, help="begin nothing after so many hours")
    run.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="only these sets")
    commands.add_parser("list", help="print the plan: what is done, and the estimated hours left")
    page = commands.add_parser("page", help="write the page from the results")
    page.add_argument("--write", type=Path, default=Path("docs/claims.md"))
    arguments = parser.parse_args()
    if arguments.command == "run":
        from benchmarks.claims.running import run as run_pieces
        from benchmarks.claims.running import set_up_process

        set_up_process(arguments.out)
        try:
            run_pieces(arguments.data, arguments.out, arguments.hours, tuple(arguments.sets))
        except TophitError as error:  # also a signal, after which the same command goes on
            sys.exit(str(error))
    elif arguments.command == "list":
        from benchmarks.claims.plan_list import print_plan

        print_plan()
    else:
        from benchmarks.claims.claims_page import write_page

        write_page(arguments.write)


if __name__ == "__main__":
    main()
