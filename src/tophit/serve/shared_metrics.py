"""The counts of several processes together: each writes its own to a file now and then, and any of them adds all up."""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

_ENDED = "ended"
_SAME_EVERYWHERE = ("tophit_items",)
"""What every process knows, and must not be added up."""


def publish(folder: Path, number: int, text: bytes) -> None:
    """Write a process's counts for the others."""
    _write(folder / f"{number}.metrics", text)


def _write(path: Path, text: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(text)
    os.replace(temporary, path)


def retire(folder: Path, number: int) -> None:
    """Keep what a process that died has counted, so that no count goes back when it is started again."""
    path, ended = folder / f"{number}.metrics", folder / _ENDED
    if path.is_file():
        texts = [each.read_text(encoding="utf-8") for each in (ended, path) if each.is_file()]
        _write(ended, add_up(texts, with_states=False))
        path.unlink()


def added_up(folder: Path) -> bytes:
    """Return the counts of all processes, as they last wrote them."""
    ended = folder / _ENDED
    paths = [*sorted(folder.glob("*.metrics")), *([ended] if ended.is_file() else [])]
    return add_up(path.read_text(encoding="utf-8") for path in paths)


def add_up(texts: Iterable[str], with_states: bool = True) -> bytes:
    r"""Add up metrics in Prometheus' text format; without states such as memory, which end with their process.

    >>> add_up(["# TYPE a_total counter\na_total{x=\"1\"} 2.0\n", "# TYPE a_total counter\na_total{x=\"1\"} 3.0\n"])
    b'# HELP a_total \n# TYPE a_total counter\na_total{x="1"} 5.0\n'
    """
    heads: dict[str, str] = {}
    samples: dict[str, dict[str, float]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            if family.name.endswith("_created"):  # times, of one process each
                continue
            if family.type == "gauge" and not with_states:
                continue
            name = f"{family.name}_total" if family.type == "counter" else family.name
            heads[family.name] = f"# HELP {name} {family.documentation}\n# TYPE {name} {family.type}\n"
            own = samples.setdefault(family.name, {})
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
                key = f"{sample.name}{{{labels}}}" if labels else sample.name
                before = own.get(key, 0.0)
                own[key] = max(before, sample.value) if family.name in _SAME_EVERYWHERE else before + sample.value
    lines = (heads[name] + "".join(f"{key} {value}\n" for key, value in own.items()) for name, own in samples.items())
    return "".join(lines).encode()
