"""The errors that `verify` raises: a violation, and a gap in the coverage."""

from __future__ import annotations

from syncverify.report.report import Report
from syncverify.report.text import diagnosis, headline


class PropertyViolation(AssertionError):  # noqa: N818  # part of the API
    """A subject violates a property; the message is the full diagnosis.

    Attributes:
        report: The report.
    """

    __module__ = "syncverify"  # as users import it, and as pytest prints it

    def __init__(self, report: Report) -> None:
        # The first line is all that pytest's summary of a test run shows.
        super().__init__(f"{headline(report)}\n\n{diagnosis(report)}")
        self.report = report


class CoverageGap(AssertionError):  # noqa: N818  # part of the API
    """The scenarios that were played contain fewer features than required.

    Attributes:
        report: The report, without violations.
    """

    __module__ = "syncverify"

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report
