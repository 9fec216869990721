"""The command line. Each command is one library call; heavy imports wait until a command needs them."""

from tophit.cli import (  # noqa: F401
    advice_command,
    compare,
    data,
    embed,
    evaluation,
    export,
    items,
    naming_commands,
    paper,
    report,
    search,
    serve,
    training,
)
from tophit.cli.shell import app, main

__all__ = ["app", "main"]
