"""The renderer of each kind of result, and the files of a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from syncverify.explain.waits.answers import AnsweredWaits
from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.outcome import Parity
from syncverify.rendered import Rendered, Renderer
from syncverify.report import run, simulation, waits
from syncverify.report.account import Account
from syncverify.report.console import say, write, write_json
from syncverify.report.report import Report
from syncverify.report.whole_step import page


def _renderer(
    account_of: Callable[[Any], Account], drawn: Callable[[Any], dict[str, Any]]
) -> Renderer:
    def write_page(result: Rendered, path: Path) -> None:
        # Late, as the template engine is needed for this file alone.
        from syncverify.report.html.render import rendered

        write(path, rendered(account_of(result), drawn(result)))

    return Renderer(
        lambda result: account_of(result).text(),
        lambda result: account_of(result).to_json(),
        write_page,
    )


RENDERERS: Final[dict[type[Rendered], Renderer]] = {
    Report: _renderer(run.account_of, lambda _: {"violations": ()}),
    Simulation: _renderer(simulation.account_of, simulation.drawn),
    Parity: _renderer(page.account_of, page.drawn),
    AnsweredWaits: _renderer(waits.account_of, waits.drawn),
}


def publish(result: Rendered, json_path: Path | None, html_path: Path | None) -> None:
    """Print the text of a result, and write the files that have a path.

    Raises:
        UsageError: A file cannot be written.
    """
    say(str(result))
    write_files(result, json_path, html_path)


def write_files(
    result: Rendered, json_path: Path | None, html_path: Path | None
) -> None:
    """Write a result as JSON and as a page, each if it has a path.

    Raises:
        UsageError: A file cannot be written.
    """
    write_json(json_path, result.to_json())
    if html_path is not None:
        result.write_html(html_path)
