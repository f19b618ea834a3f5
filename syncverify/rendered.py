"""Results of plays, which the report renders: as text, as JSON and as a page.

A result imports nothing of the report, since the report imports the results. So `syncverify`, which
is imported before both, says here where the report is.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar


class Rendered:
    """A result with a report; `str()` gives its text."""

    __slots__ = ()

    # Imports the module that makes the account of a result, and its page.
    report: ClassVar[Callable[[], Any]]

    # Without @override: `import syncverify` does not import typing_extensions.
    def __str__(self) -> str:  # type: ignore[explicit-override]
        text: str = Rendered.report().account_of(self).text()
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        values: dict[str, Any] = Rendered.report().account_of(self).to_json()
        return values

    def write_html(self, path: Path) -> None:
        """Write the report as one page; raise UsageError where it cannot be written."""
        Rendered.report().write_page(self, path)
