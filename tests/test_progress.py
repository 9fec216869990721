import io
import re
import time
from collections.abc import Iterator

from rich.console import Console

from tophit.progress import TerminalView, View


def slowly(items: str) -> Iterator[str]:
    """Yield items at a pace that can be measured."""
    for item in items:
        time.sleep(0.15)
        yield item


def shown(terminal: bool) -> str:
    output = io.StringIO()
    view = TerminalView(Console(file=output, force_terminal=terminal, width=120))
    assert list(view.track("Reading")(slowly("abc"), 3)) == ["a", "b", "c"]
    with view.steps(total=4, done=1):
        view.step(0.5)
        view.note("a sentence")
        view.evaluated(2, "MAP@R", 0.25, 0.75)
    return output.getvalue()


def test_a_terminal_shows_bars_with_count_rate_time_left_and_loss() -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown(terminal=True))
    assert re.search(r"Reading .* 3/3 \d+\.\d(/s| s each) +0:00:0", text)
    assert re.search(r"Training .* 2/4 .* loss 0\.500", text)


def test_elsewhere_there_are_only_sentences() -> None:
    assert shown(terminal=False) == "a sentence\nepoch 2: validation MAP@R 0.2500, recall@1 0.7500\n"


def test_the_plain_view_is_silent() -> None:
    view = View()
    assert list(view.track("x")([1, 2], 2)) == [1, 2]
    with view.steps(2, 0):
        view.step(1.0)
    assert view.note("x") is None
