"""The registry: names for everything that a recipe or a command can choose.

``@register("loss", "pnp")`` on a class or function gives it a name. Everything else comes from the signature: a
parameter with a plain type is an option, its default is the option's default, and ``Annotated[float, Doc("...",
gt=0)]`` adds a description and limits. Nothing is written twice.

A name is looked up in four places: what was registered in this process, the package's own files, the entry points of
installed packages (group ``tophit.losses`` and so on), and ``package.module:Name``. The package's own files are read,
not imported (:mod:`tophit.signatures`): listing names or checking a recipe does not wait for torch.
"""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from tophit.errors import UsageError
from tophit.signatures import decorated_definitions, parameters_at, parameters_of

Target = TypeVar("Target", bound=Callable[..., Any])
_ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Kind:
    """A kind of thing to register: where the package keeps its own, and which arguments the run sets, not the user.

    ``decorator`` is the name of a decorator that registers only this kind and takes the name as its first argument.
    """

    plural: str
    places: tuple[str, ...]
    given: frozenset[str] = frozenset()
    decorator: str = ""
    word: str = ""

    @property
    def group(self) -> str:
        """The entry point group with which an installed package adds its own."""
        return f"tophit.{self.plural}"


_BATCH = frozenset({"embeddings", "labels", "anchors", "normalize", "generator", "block"})
_RUN = frozenset(
    {
        "embed",
        "features",
        "head",
        "loss",
        "optimizer",
        "sampler",
        "miner",
        "memory",
        "stepper",
        "dim",
        "channels",
        "device",
    }
)
_DEALT = frozenset({"labels", "sets", "paths", "images", "seed"})
KINDS: dict[str, Kind] = {
    "loss": Kind("losses", ("losses",), frozenset({"num_classes", "embedding_dim", "embedding_size"})),
    "miner": Kind("miners", ("mining.py",), _BATCH),
    "method": Kind("methods", ("methods",), _RUN | _DEALT | {"classes", "per_class"}),
    "sampler": Kind("samplers", ("batches",), _DEALT),
    "backbone": Kind("backbones", ("models",), decorator="register_backbone"),
    "metric": Kind("metrics", ("evaluation",), frozenset({"found", "k"})),
    "backend": Kind("backends", ("search",), word="search backend"),
    "set": Kind("sets", ("data/sets",), decorator="benchmark_set", word="benchmark set"),
}


@dataclass(frozen=True)
class Entry:
    """Something registered: its names, its location, the decorator's arguments, and its options."""

    kind: str
    name: str
    module: str
    attribute: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    source: Callable[[], dict[str, inspect.Parameter]] = field(default=dict, repr=False, compare=False)

    def load(self) -> Any:
        """Import and return the class or function."""
        try:
            found = importlib.import_module(self.module)
            for part in self.attribute.split("."):
                found = getattr(found, part)
        except ImportError as error:
            raise UsageError(f"{self.kind} '{self.name}' can't be imported: {error}.") from error
        except AttributeError:
            raise UsageError(f"{self.kind} '{self.name}': the module {self.module} has no {self.attribute}.") from None
        return found

    def told(self) -> Mapping[str, Any]:
        """Import it and return all of its decorator's arguments, including functions and objects."""
        self.load()
        return _registered.get((self.kind, self.name), self).facts

    @cached_property
    def options(self) -> dict[str, inspect.Parameter]:
        """What a user may set, by name: the parameters of the signature that the run does not set."""
        own = self.source()
        if "also" in self.facts:
            own = {**parameters_at(*self.facts["also"].split(":")), **own}
        given = KINDS[self.kind].given | {"self", "cls"}
        return {name: parameter for name, parameter in own.items() if name not in given}


_registered: dict[tuple[str, str], Entry] = {}


def register(kind: str, name: str, **facts: Any) -> Callable[[Target], Target]:
    """Give a class or function a name that recipes and commands can use.

    ``also="package.module:Name"`` adds the options of another signature, such as that of a settings class.
    ``called=("mpa",)`` lists further names that people use for it (see :func:`meant`).

    >>> @register("metric", "first-of-doctest")
    ... def first(found, k: int = 1):
    ...     '''Describe the first k.'''
    >>> find("metric", "first-of-doctest").summary
    'Describe the first k.'
    """
    check_kind(kind)

    def add(target: Target) -> Target:
        summary = (inspect.getdoc(target) or "").split("\n", 1)[0]
        own = _entry(kind, name, target.__module__, target.__qualname__, facts, summary)
        if not target.__module__.startswith("tophit."):  # a class of a notebook or a test is in no file
            own = replace(own, source=lambda: parameters_of(target))
        _registered[kind, name] = own
        return target

    return add


def own_names(kind: str) -> list[str]:
    """Return the names of a kind in the package's own files, in their order."""
    return list(_own_entries(kind))


def names(kind: str) -> list[str]:
    """Return the names of a kind: the package's own in the order of its files, then all others."""
    added = [name for known, name in _registered if known == kind]
    return list(dict.fromkeys([*own_names(kind), *added, *_entry_points(kind)]))


def entries(kind: str) -> list[Entry]:
    """Return everything that is registered under a kind."""
    return [find(kind, name) for name in names(kind)]


def find(kind: str, name: str) -> Entry:
    """Return the entry of a registered name or of ``package.module:Name``; raise if there is none."""
    check_kind(kind)
    if (kind, name) in _registered:
        return _registered[kind, name]
    own = _own_entries(kind)
    if name in own:
        return own[name]
    library = f"{name.partition('/')[0]}/"  # timm/NAME is any model of the library that is registered as timm/
    if library in own and library != name:
        return own[library]
    points = _entry_points(kind)
    if name in points:
        return _from_outside(kind, name, points[name].value)
    if ":" in name:
        return _from_outside(kind, name, name)
    word, known = KINDS[kind].word or kind, names(kind)
    hint = f"{did_you_mean(name, known)} Choices: {', '.join(known)}; or package.module:Name."
    raise UsageError(f"There is no {word} '{name}'.{hint}")


def is_known(kind: str, name: str) -> bool:
    """Return whether a name is registered; ``package.module:Name`` always counts as known."""
    own = _own_entries(kind)
    if ":" in name or name in own or (kind, name) in _registered or name in _entry_points(kind):
        return True
    library, slash, model = name.partition("/")
    return bool(model) and library + slash in own


def meant(kind: str, name: str) -> str:
    """Return the registered name that a user means: the same letters written otherwise, or a name it is also called.

    A name that means nothing here, or more than one thing, is returned as it is.

    >>> meant("loss", "SmoothAP"), meant("loss", "mpa"), meant("loss", "nothing")
    ('smooth-ap', 'multi-proxy-anchor', 'nothing')
    """
    if is_known(kind, name):
        return name
    found = [
        entry.name for entry in entries(kind) if _letters(name) in map(_letters, (entry.name, *_also_called(entry)))
    ]
    return found[0] if len(found) == 1 else name


def _also_called(entry: Entry) -> Sequence[str]:
    return entry.facts.get("called", ())


def _letters(name: str) -> str:
    return name.lower().translate({ord(mark): None for mark in "-_ "})


def metric_level(name: str) -> tuple[int | None, str]:
    """Return the level of a hierarchy at which a metric counts results as right, None for no level, and its name.

    >>> metric_level("level2-recall@5"), metric_level("mAP")
    ((2, 'recall@5'), (None, 'mAP'))
    """
    level, dash, rest = name.partition("-")
    number = level.removeprefix("level")
    return (int(number), rest) if dash and number != level and number.isdecimal() and int(number) else (None, name)


def find_metric(name: str) -> tuple[Entry, int | None]:
    """Return the metric of a name such as ``mAP`` or ``recall@16``, and its number of results if it takes one.

    ``level1-`` before a name is left out: it says what counts as right (``metric_level``).
    """
    level, name = metric_level(name)
    kind, k = name, None
    before, _, number = name.rpartition("@")
    if before and number.isdecimal() and (":" in name or not is_known("metric", name)):
        kind, k = before, int(number)
    if not is_known("metric", kind):
        known = [f"{entry.name}@K" if "k" in entry.source() else entry.name for entry in entries("metric")]
        hint = did_you_mean(name.partition("@")[0], [each.removesuffix("@K") for each in known])
        raise UsageError(f"There is no metric '{name}'.{hint} Choices: {', '.join(known)}; or package.module:function.")
    entry = find("metric", kind)
    takes_k = "k" in entry.source()
    if level is not None and entry.facts.get("graded"):
        raise UsageError(f"The metric {kind} looks at all levels of a hierarchy: write {name}, without level{level}-.")
    if takes_k and not k:
        raise UsageError(f"The metric {kind} needs a number of results of at least 1, as in {kind}@10.")
    if k is not None and not takes_k:
        raise UsageError(f"The metric {kind} takes no number of results: write {kind}, not {name}.")
    return entry, k


def did_you_mean(word: object, known: Sequence[str]) -> str:
    """Return a question with the nearest known word, by letters or initials, or nothing if none is near."""
    text, lower = str(word).lower(), {each.lower(): each for each in known}
    by_initials = [each for each in known if "".join(part[0] for part in each.split("-") if part) == text]
    near = by_initials or [lower[each] for each in difflib.get_close_matches(text, lower, 1)]
    return f" Did you mean '{near[0]}'?" if near else ""


def check_kind(kind: str) -> None:
    """Raise unless there is such a kind."""
    if kind not in KINDS:
        raise UsageError(f"There is no kind '{kind}' to register or find; the kinds are {', '.join(KINDS)}.")


def _entry(kind: str, name: str, module: str, attribute: str, facts: Mapping[str, Any], summary: str) -> Entry:
    return Entry(kind, name, module, attribute, facts, summary, lambda: parameters_at(module, attribute))


def _from_outside(kind: str, name: str, place: str) -> Entry:
    """Return the entry of ``package.module:Name``. Modules in the working folder are found too."""
    module, _, attribute = place.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    target = Entry(kind, name, module, attribute).load()
    known = next((each for each in _registered.values() if (each.module, each.attribute) == (module, attribute)), None)
    summary = (inspect.getdoc(target) or "").split("\n", 1)[0]
    return Entry(kind, name, module, attribute, known.facts if known else {}, summary, lambda: parameters_of(target))


def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return _installed(tuple(sys.path)).get(KINDS[kind].group, {})


@cache
def _installed(path: tuple[str, ...]) -> dict[str, dict[str, EntryPoint]]:
    """Return the entry points of the packages on a path, by group and name; looking at all of them takes a while."""
    every: Any = entry_points()  # read once for all groups
    return {kind.group: {point.name: point for point in every.select(group=kind.group)} for kind in KINDS.values()}


@cache
def _own_entries(kind: str) -> dict[str, Entry]:
    """Return the entries in the package's own files, by name."""
    found: dict[str, Entry] = {}
    for path in _files(KINDS[kind].places):
        module = ".".join(("tophit", *path.relative_to(_ROOT).with_suffix("").parts))
        for definition in decorated_definitions(path.read_text(encoding="utf-8"), ("register", KINDS[kind].decorator)):
            for decorator, words, facts in definition.decorators:
                words = words if decorator == "register" else (kind, *words)
                if words[:1] == (kind,):
                    name = str(words[1])
                    found[name] = _entry(kind, name, module, definition.name, facts, definition.summary)
    return found


def _files(places: Sequence[str]) -> Iterator[Path]:
    for place in places:
        path = _ROOT / place
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))
