"""Results of plays, which the report renders: as text, as JSON and as a page.

A result imports nothing of the report, since the report imports the results. So `syncverify`, which
is imported before both, says here where the renderers are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple


class Renderer(NamedTuple):
    """The functions that render one kind of result."""

    text_of: Callable[[Any], str]
    json_of: Callable[[Any], dict[str, Any]]
    write_page: Callable[[Any, Path], None]


class Rendered:
    """A result with a report; `str()` gives its text.

    Attributes:
        renderer_of: Imports the report, and returns the renderer of a result.
    """

    __slots__ = ()

    renderer_of: ClassVar[Callable[[Rendered], Renderer]]

    # Without @override: `import syncverify` does not import typing_extensions.
    def __str__(self) -> str:  # type: ignore[explicit-override]
        return Rendered.renderer_of(self).text_of(self)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return Rendered.renderer_of(self).json_of(self)

    def write_html(self, path: Path) -> None:
        """Write the report as one page.

        Raises:
            UsageError: The file cannot be written.
        """
        Rendered.renderer_of(self).write_page(self, path)
