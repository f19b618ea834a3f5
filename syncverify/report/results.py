"""The renderer of results: the functions of each kind of result, and its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from syncverify.rendered import Rendered
from syncverify.report.console import say, write
from syncverify.report.simulation.json_values import simulation_json
from syncverify.report.simulation.page import simulation_page
from syncverify.report.simulation.text import simulation_text
from syncverify.report.whole_step.json_values import parity_json
from syncverify.report.whole_step.page import parity_page
from syncverify.report.whole_step.text import parity_text
from syncverify.simulation.simulation import Simulation
from syncverify.whole_step.outcome import Parity


class _Functions(NamedTuple):
    """The functions that render one kind of result."""

    text_of: Callable[[Any], str]
    json_of: Callable[[Any], dict[str, Any]]
    page_of: Callable[[Any], str]


_BY_KIND: Final[Mapping[type[Rendered], _Functions]] = {
    Simulation: _Functions(simulation_text, simulation_json, simulation_page),
    Parity: _Functions(parity_text, parity_json, parity_page),
}


def text_of(result: Rendered) -> str:
    """Return the text of a result."""
    return _BY_KIND[type(result)].text_of(result)


def json_of(result: Rendered) -> dict[str, Any]:
    """Return a result as plain JSON values."""
    return _BY_KIND[type(result)].json_of(result)


def write_page(result: Rendered, path: Path) -> None:
    """Write the page of a result; raise UsageError where that fails."""
    write(path, _BY_KIND[type(result)].page_of(result))


def publish(result: Rendered, json_path: Path | None, html_path: Path | None) -> None:
    """Print the text of a result, and write the files that have a path.

    Raises:
        UsageError: A file cannot be written.
    """
    say(text_of(result))
    if json_path is not None:
        write(json_path, json.dumps(json_of(result), indent=2))
    if html_path is not None:
        write_page(result, html_path)
