"""What the backbones of other libraries share: import the library, or say in one sentence how to get it."""

from importlib import import_module
from types import ModuleType

from tophit.errors import TophitError, UsageError
from tophit.models.weights import State


def import_library(name: str, backbone: str, install: str) -> ModuleType:
    """Import a library that a backbone needs; a broken library gives a different error from a missing one."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise TophitError(f"The backbone '{backbone}' needs {name}, which can't be imported: {error}") from error
        raise UsageError(f"The backbone '{backbone}' needs {name}; install it with: pip install {install}") from None
    except (ImportError, RuntimeError, AttributeError) as error:
        raise TophitError(f"The backbone '{backbone}' needs {name}, which can't be imported: {error}") from error


def unreachable(backbone: str, error: Exception, advice: str) -> TophitError:
    """Return the error for weights that could not be downloaded."""
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return TophitError(
        f"The weights of '{backbone}' are not on this machine and can't be downloaded ({first_line}); {advice}"
    )


def inside_model(state: State) -> State:
    """Rename a library's weights to ours, which hold its network as ``model``."""
    return {name if name.startswith("model.") else f"model.{name}": value for name, value in state.items()}
