"""YAML from files that others may have made: without objects, and of a size that can be handled.

An alias repeats a part of the text, and aliases of aliases make a few lines stand for more than any memory holds.
"""

from typing import Any

import yaml

_MOST_CHARACTERS = 2_000_000
_MOST_VALUES = 200_000
_DEEPEST = 50


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text; what is too large, too deep or repeats itself is a ``YAMLError``."""
    if len(text) > _MOST_CHARACTERS:
        raise yaml.YAMLError(f"it has {len(text):,} characters, more than {_MOST_CHARACTERS:,}")
    kind = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    _check_depth(text, kind)
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > _MOST_VALUES:
            raise yaml.YAMLError(f"with its aliases written out it has more than {_MOST_VALUES:,} values")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_depth(text: str, kind: Any) -> None:
    """Refuse deep nesting, which the loader in C follows until its stack is full, and crashes."""
    depth = 0
    for event in yaml.parse(text, Loader=kind):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {_DEEPEST} levels deep")


def _values(node: Any, known: dict[int, int | None]) -> int:
    """Count the values below a node, those of aliases every time they are used."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    name = id(node)
    if name in known:
        count = known[name]
        if count is None:
            raise yaml.YAMLError("an alias contains itself")
        return count
    known[name] = None
    parts = node.value if isinstance(node, yaml.SequenceNode) else [each for pair in node.value for each in pair]
    known[name] = count = 1 + sum(_values(each, known) for each in parts)
    return count
