"""Signatures and decorators read from source files, without importing them.

An annotation is evaluated with the names of :mod:`tophit.options` and Python's own. Every other type, such as a tensor,
is :class:`Foreign`: a parameter of that type is no option.
"""

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args

from tophit import options

_ROOT = Path(__file__).parent
# Top-level decorators with what follows on further lines, and the name of what they decorate.
_DECORATED = re.compile(r"^((?:@[^\n]*\n(?:[ )][^\n]*\n)*)+)(?:class|def) (\w+)", re.MULTILINE)
_DOCSTRING = re.compile(r':\n +"""([^\n]*)')


class DecoratedDefinition(NamedTuple):
    """A class or function with the first line of its docstring and its decorators: name, words and plain facts."""

    name: str
    summary: str
    decorators: list[tuple[str, tuple[Any, ...], dict[str, Any]]]


def decorated_definitions(text: str, decorators: Sequence[str]) -> Iterator[DecoratedDefinition]:
    """Yield the top-level definitions of a source text that have one of these decorators.

    Only the decorators are parsed, so a whole folder takes milliseconds.
    """
    marks = [f"@{each}(" for each in decorators if each]
    for found in _DECORATED.finditer(text) if any(mark in text for mark in marks) else ():
        written, name = found.groups()
        if any(mark in written for mark in marks):
            docstring = _DOCSTRING.search(text, found.end())
            calls = [call for call in _decorator_calls(written) if call[0] in decorators]
            yield DecoratedDefinition(name, docstring.group(1).removesuffix('"""') if docstring else "", calls)


def _decorator_calls(written: str) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    (decorated,) = ast.parse(f"{written}class Decorated: ...").body
    assert isinstance(decorated, ast.ClassDef)
    for call in decorated.decorator_list:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            words = tuple(each.value for each in call.args if isinstance(each, ast.Constant))
            yield call.func.id, words, _plain_facts(call.keywords)


def _plain_facts(keywords: Sequence[ast.keyword]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for keyword in keywords:
        try:
            facts[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError:  # a function or object, available only after import
            continue
    return facts


def parameters_of(target: Any) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a class or function, with annotations evaluated where possible."""
    try:
        signature = inspect.signature(target, eval_str=True)
    except NameError:  # an annotation for type checkers only
        signature = inspect.signature(target)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in signature.parameters.items() if parameter.kind in named}


def parameters_at(module: str, attribute: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class or function: read from its file if in the package, else imported."""
    node = _definition(module, attribute)
    return (
        parameters_of(getattr(importlib.import_module(module), attribute)) if node is None else _read_parameters(node)
    )


class Member(NamedTuple):
    """Where a class has a member from: the name of the class that defines it, and its value if that is plain."""

    owner: str
    value: Any


def member_at(module: str, attribute: str, name: str) -> Member | None:
    """Return a member of a class, its own or inherited: read from its file if in the package, else imported.

    >>> member_at("tophit.losses.proxy_anchor", "ProxyAnchorLoss", "compares_images")
    Member(owner='ProxyLoss', value=False)
    """
    node = _definition(module, attribute)
    if not isinstance(node, ast.ClassDef):
        lineage = inspect.getmro(getattr(importlib.import_module(module), attribute))
        return next((Member(each.__name__, vars(each)[name]) for each in lineage if name in vars(each)), None)
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == name:
            return Member(attribute, None)
        if isinstance(each, ast.Assign | ast.AnnAssign) and name in _assigned(each):
            return Member(attribute, _value(each.value, _Words()))
    homes = _imported(module)
    bases = [(homes.get(base.id, module), base.id) for base in node.bases if isinstance(base, ast.Name)]
    found = (member_at(*base, name) for base in bases if _definition(*base) is not None)
    return next((each for each in found if each is not None), None)


def _assigned(statement: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


_Definition = ast.ClassDef | ast.FunctionDef


def _definition(module: str, attribute: str) -> _Definition | None:
    """Return a class or function of the package's own files; None if it is not there."""
    return next((each for each in _parsed(module) if isinstance(each, _Definition) and each.name == attribute), None)


def _imported(module: str) -> dict[str, str]:
    """Return the module that each name comes from which a file of the package imports."""
    found = [each for each in _parsed(module) if isinstance(each, ast.ImportFrom)]
    return {name.asname or name.name: str(each.module) for each in found for name in each.names}


@cache
def _parsed(module: str) -> list[ast.stmt]:
    """Return the statements of a file of the package; none if there is no such file."""
    path = _ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    here = module.startswith("tophit.") and path.is_file()
    return ast.parse(path.read_text(encoding="utf-8")).body if here else []


def _read_parameters(node: _Definition) -> dict[str, inspect.Parameter]:
    """Return the plain-typed parameters of a class's constructor, a dataclass's fields or a function."""
    if isinstance(node, ast.ClassDef):
        made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
        if made is None:
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            return _evaluated((ast.unparse(each.target), each.annotation, each.value) for each in fields)
        node = made
    plain = [*node.args.posonlyargs, *node.args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(node.args.defaults)) + list(node.args.defaults)
    pairs = [*zip(plain, defaults, strict=True), *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
    return _evaluated((each.arg, each.annotation, default) for each, default in pairs)


def _evaluated(declared: Iterator[tuple[str, ast.expr | None, ast.expr | None]]) -> dict[str, inspect.Parameter]:
    """Return parameters with plain types; tensors and modules are not options."""
    words = _Words()
    found: dict[str, inspect.Parameter] = {}
    for name, annotation, default in declared:
        kind = _value(annotation, words)
        if kind is not Foreign and set(get_args(kind)) != {Foreign, NoneType}:
            value = _value(default, words)
            found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=kind)
    return found


def _value(expression: ast.expr | None, words: "_Words") -> Any:
    return inspect.Parameter.empty if expression is None else eval(ast.unparse(expression), {}, words)


class _ForeignKind(type):
    """Foreign, Foreign.anything and Foreign[anything] are all Foreign."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, key: Any) -> Any:
        return cls


class Foreign(metaclass=_ForeignKind):
    """Stands for every type that is not a plain value, such as a tensor. In a union: values only Python can pass."""


class _Words(dict[str, Any]):
    """The names used in the package's annotations: those of tophit.options, Python's own, or else Foreign."""

    def __init__(self) -> None:
        super().__init__(vars(options))

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Foreign)
