"""The account of each kind of result, and the files of a result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from syncverify.explain.waits.answers import AnsweredWaits
from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.outcome import Parity
from syncverify.rendered import Rendered
from syncverify.report import run, simulation, waits
from syncverify.report.account import Account
from syncverify.report.annotations import annotations_of, say_annotations
from syncverify.report.console import say, write, write_json
from syncverify.report.report import Report
from syncverify.report.sarif import sarif_log
from syncverify.report.whole_step import page
from syncverify.scenario.settings import ReportOptions

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
    """Write the page of a result; raise UsageError where that fails."""
    # Late, as the template engine is needed for this file alone.
    from syncverify.report.html.render import rendered

    write(path, rendered(account_of(result), _FACES[type(result)][1](result)))


def publish(result: Rendered, options: ReportOptions) -> None:
    """Print the text of a result, and write the files that have a path."""
    account = account_of(result)
    say_annotations(options.shown_as, annotations_of(account))
    say(account.text())
    write_account(account, options)
    if options.html_path is not None:
        result.write_html(options.html_path)


def write_account(account: Account, options: ReportOptions, **others: None) -> None:
    """Write an account as JSON, with `others` in it, and as SARIF, each if it has a path."""
    write_json(options.json_path, account.to_json() | others)
    if options.sarif_path is not None:
        write_json(options.sarif_path, sarif_log(account))
