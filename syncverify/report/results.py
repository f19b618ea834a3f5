"""The account of each kind of result, and the files of a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from syncverify.explain.waits.answers import AnsweredWaits
from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.outcome import Parity
from syncverify.rendered import Rendered
from syncverify.report import run, simulation, waits
from syncverify.report.account import Account
from syncverify.report.console import say, write, write_json
from syncverify.report.report import Report
from syncverify.report.whole_step import page

# By kind of result: what makes its account, and its tables and pictures.
_FACES: Final[dict[type, tuple[Callable[[Any], Account], Callable[[Any], Any]]]] = {
    Report: (run.account_of, lambda _: {"violations": ()}),
    Simulation: (simulation.account_of, simulation.drawn),
    Parity: (page.account_of, page.drawn),
    AnsweredWaits: (waits.account_of, waits.drawn),
}


def account_of(result: Rendered) -> Account:
    """Return the account of a result of any kind."""
    return _FACES[type(result)][0](result)


def write_page(result: Rendered, path: Path) -> None:
    """Write the page of a result.

    Raises:
        UsageError: The file cannot be written.
    """
    # Late, as the template engine is needed for this file alone.
    from syncverify.report.html.render import rendered

    write(path, rendered(account_of(result), _FACES[type(result)][1](result)))


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
