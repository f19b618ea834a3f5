"""The renderer of each kind of result, and the files of a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.outcome import Parity
from syncverify.rendered import Rendered, Renderer
from syncverify.report.console import say, write, write_json
from syncverify.report.simulation import (
    simulation_json,
    simulation_page,
    simulation_text,
)
from syncverify.report.whole_step.page import parity_json, parity_page
from syncverify.report.whole_step.text import parity_text


def _file_of(page_of: Callable[[Any], str]) -> Callable[[Any, Path], None]:
    return lambda result, path: write(path, page_of(result))


RENDERERS: Final[dict[type[Rendered], Renderer]] = {
    Simulation: Renderer(simulation_text, simulation_json, _file_of(simulation_page)),
    Parity: Renderer(parity_text, parity_json, _file_of(parity_page)),
}


def publish(result: Rendered, json_path: Path | None, html_path: Path | None) -> None:
    """Print the text of a result, and write the files that have a path.

    Raises:
        UsageError: A file cannot be written.
    """
    say(str(result))
    write_json(json_path, result.to_json())
    if html_path is not None:
        result.write_html(html_path)
