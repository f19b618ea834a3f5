"""Verify a subject, and raise what was found.

A test imports this when pytest collects it, so torch and the harness are imported by the first
call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from syncverify.errors import UsageError
from syncverify.scenario.settings import SETTINGS, Settings

if TYPE_CHECKING:
    from syncverify.report.report import Report
    from syncverify.subjects.subject import SubjectFactory

    P = ParamSpec("P")
    Verify = Callable[Concatenate[str | SubjectFactory, P], Report]


class PropertyViolation(AssertionError):  # noqa: N818  # part of the API
    """A subject violates a property; the message is the full diagnosis of its `report`."""

    __module__ = "syncverify"  # as users import it, and as pytest prints it

    def __init__(self, report: Report) -> None:
        from syncverify.report.run import diagnosis
        from syncverify.report.text import verdict

        # The first line is all that pytest's summary of a test run shows.
        headline = verdict(report)
        if report.violations:
            first, *others = (entry.violation for entry in report.violations)
            more = f" (and {len(others)} more)" if others else ""
            headline = f"{first.property}{more}: {first.summary}"
        super().__init__(f"{headline}\n\n{diagnosis(report)}")
        self.report = report


class CoverageGap(AssertionError):  # noqa: N818  # part of the API
    """The scenarios that were played cover less than required, or none was judged.

    Its `report` has no violations.
    """

    __module__ = "syncverify"

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


def _taking(
    settings: Callable[P, Settings],
) -> Callable[[Callable[[str | SubjectFactory, Settings], Report]], Verify[P]]:
    """Make keyword arguments of the settings that a function takes, and document them."""

    def decorate(
        function: Callable[[str | SubjectFactory, Settings], Report],
    ) -> Verify[P]:
        def verified(
            subject: str | SubjectFactory, /, *args: P.args, **kwargs: P.kwargs
        ) -> Report:
            __tracebackhide__ = True  # pytest shows the user's lines and the diagnosis
            return function(subject, settings(*args, **kwargs))

        own, given = inspect.signature(function), inspect.signature(settings)
        shown: Any = functools.update_wrapper(verified, function)
        shown.__signature__ = own.replace(
            parameters=[own.parameters["subject"], *given.parameters.values()]
        )
        meanings = (f"    {name}: {each.meaning}" for name, each in SETTINGS.items())
        shown.__doc__ = "\n".join([f"{function.__doc__}", "Settings:", *meanings])
        return verified

    return decorate


@_taking(Settings)
def verify(subject: str | SubjectFactory, settings: Settings) -> Report:
    """Verify a gradient synchronizer.

    Args:
        subject: A class, a factory, a built-in name, or `module:attribute`.
        settings: The attributes of `Settings`, each as a keyword argument.

    Returns:
        The report of a search without violations.

    Raises:
        PropertyViolation: The subject violates a property.
        CoverageGap: Fewer features occurred or fewer lines ran than required, a scenario of an
            exhaustive search was not played, or no scenario was judged.
        UsageError: The subject, the backend or another setting cannot be used.
    """
    __tracebackhide__ = True
    from syncverify.command.verification.reported_search import run_search
    from syncverify.playing.choice import open_backend
    from syncverify.search.campaign_file import forget
    from syncverify.search.observation import Observing
    from syncverify.subjects.subject import resolve

    try:
        found = resolve(subject, settings.contract)
        observes = settings.beyond or found.capabilities.fail_on_wrong
        with closing(open_backend(settings.backend, found)) as opened:
            report = run_search(
                found, opened, settings, Observing() if observes else None
            )
    except UsageError as error:
        # The caller's mistake: no line of the harness explains it.
        raise error.with_traceback(None) from error.__cause__
    if report.campaign is not None:
        forget(report.campaign)
    if report.has_failed:
        raise PropertyViolation(report)
    gap = report.gap(settings.require_coverage, settings.require_lines)
    if gap is not None:
        raise CoverageGap(gap, report)
    return report
