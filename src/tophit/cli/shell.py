"""What all commands share: the app, its consoles and options, and exit codes."""

import os
import signal
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from tophit import __version__, interrupts
from tophit.errors import Interrupted, TophitError

_ORDER = [
    "demo",
    "plan",
    "train",
    "runs",
    "evaluate",
    "compare",
    "paper",
    "report",
    "embed",
    "index",
    "search",
    "calibrate",
    "name",
    "items",
    "serve",
    "export",
    "data",
]


class _InOrderOfUse(TyperGroup):
    """Lists commands in the order a user needs them, whatever order the modules add them in."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the command names, those in ``_ORDER`` first."""
        return sorted(self.commands, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


app = typer.Typer(
    cls=_InOrderOfUse,
    help="Train image embeddings whose first page of results is right, prove it, and search with them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_STOPPED = "Stopped. Finished work is kept; run the same command again to continue."
_IS_FIRST = os.environ.get("RANK", "0") == "0"  # the first of torchrun's processes; only it prints results
console = Console(quiet=not _IS_FIRST)
errors = Console(stderr=True)


def is_alone() -> bool:
    """Return whether this is the only process of a command, so that it may measure before it begins."""
    return os.environ.get("WORLD_SIZE", "1") == "1"


def main() -> None:
    """Run the command line; exit with 0 for success, 2 for wrong use, 1 for a failure, after one clear sentence."""
    interrupts.watch(signal.SIGINT, signal.SIGTERM)
    try:
        app()
    except Interrupted as stop:
        errors.print(escape(str(stop)), highlight=False, soft_wrap=True)
        raise SystemExit(stop.exit_code) from None
    except (TophitError, OSError) as error:
        _fail(error, getattr(error, "exit_code", 1))
    except SystemExit as end:
        if end.code == Interrupted.exit_code:
            errors.print(_STOPPED)
        raise
    except Exception as error:
        if not interrupts.asked():  # otherwise a half-imported module caused it
            _fail(TophitError(f"{type(error).__name__}: {error}. This error is unexpected; --verbose shows where."), 1)
        errors.print(_STOPPED)
        raise SystemExit(Interrupted.exit_code) from None


def _fail(error: BaseException, code: int) -> None:
    if "--verbose" in sys.argv:
        errors.print_exception()
    errors.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    raise SystemExit(code)


def _show_version(wanted: bool) -> None:
    if wanted:
        console.print(f"tophit {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the traceback of an error.")] = False,
) -> None:
    """Hold the options that come before a command."""


Verbose = Annotated[bool, typer.Option("--verbose", help="Show the traceback of an error.")]
RunOption = Annotated[str, typer.Option("--run", help="A run, an embedder's folder, or a backbone's name.")]
