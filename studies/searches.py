"""The stored result of a search: a row."""

import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

from studies.rows import today
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.report.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRow:
    """The result of a search.

    Attributes:
        subject: Name of the subject.
        backend: Name of the backend.
        seed: Seed of the search.
        date: Day of its end.
        examples: Scenarios played.
        seconds: Duration.
        violations: Violations, as `property (cause)`.
        tokens: Tokens that replay them, in the same order.
        num_properties: Number of all properties; those that apply to a scenario are judged.
        release: Version of the peer's package; of a soak, that of the harness.
        torch: Version of torch.
        python: Version of Python, such as "3.12".
    """

    subject: str
    backend: str
    seed: int = 0
    date: str
    examples: int
    seconds: float
    violations: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    num_properties: int = 0
    release: str = ""
    torch: str = ""
    python: str = ""

    @classmethod
    def of(cls, report: Report, package: str = "torch") -> Self:
        """Return the row of a search that ended today.

        Args:
            report: The report.
            package: Package whose version the row has.
        """
        found = [each.violation for each in report.violations]
        return cls(
            subject=report.subject,
            backend=report.backend,
            seed=report.seed,
            date=today(),
            examples=report.examples,
            seconds=round(report.seconds, 1),
            violations=tuple(f"{each.property} ({each.cause})" for each in found),
            tokens=tuple(each.token for each in report.violations),
            num_properties=len(ALL_PROPERTIES),
            release=_version(package),
            torch=_version("torch"),
            python=".".join(map(str, sys.version_info[:2])),
        )


def _version(package: str) -> str:
    """Return the installed version of a package, without a build number."""
    return version(package).partition("+")[0]
