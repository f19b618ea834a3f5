"""Results of plays, which a report above them renders: as text, as JSON and as a page.

A result is a value and imports nothing of the report. The report imports the results, and
`syncverify/__init__.py`, which is imported before both, says here where the report is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from typing_extensions import override


class Renderer(Protocol):
    """The functions that render any result."""

    def text_of(self, result: Rendered) -> str:
        """Return the text of a result."""

    def json_of(self, result: Rendered) -> dict[str, Any]:
        """Return a result as plain JSON values."""

    def write_page(self, result: Rendered, path: Path) -> None:
        """Write the page of a result."""


class Rendered:
    """A result with a report; `str()` gives its text.

    Attributes:
        renderer: Returns the renderer, which is imported once a result is rendered.
    """

    __slots__ = ()

    renderer: ClassVar[Callable[[], Renderer]]

    @override
    def __str__(self) -> str:
        return Rendered.renderer().text_of(self)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return Rendered.renderer().json_of(self)

    def write_html(self, path: Path) -> None:
        """Write the report as one page.

        Raises:
            UsageError: The file cannot be written.
        """
        Rendered.renderer().write_page(self, path)
