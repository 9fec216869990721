"""What a report wrote."""

from dataclasses import dataclass
from html import escape
from pathlib import Path


@dataclass(frozen=True, repr=False)
class Written:
    """The files of a report and its first sentence; ``problems`` is the CSV file of a run's label problems."""

    page: Path
    verdict: str
    problems: Path | None
    figures: list[Path]
    is_new: bool = True  # no: nothing has changed since it was made

    def __repr__(self) -> str:
        return f"{self.verdict}\nReport: {self.page}"

    def _repr_html_(self) -> str:
        address = self.page.absolute().as_uri()
        return f'<p>{escape(self.verdict)}<br>Report: <a href="{escape(address)}">{escape(str(self.page))}</a></p>'
