"""The report of a search: subject, coverage and violations."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from syncverify.plain_text import counted
from syncverify.rendered import Rendered
from syncverify.report.coverage import Bound, CoverageSummary
from syncverify.report.observed import ObservedFeature, with_rating
from syncverify.report.played_lines import LineCoverage
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class NotTried:
    """The part that a search left out because it ended early."""

    num_scenarios: int  # that were not played
    num_wanted: int  # scenarios of the whole search
    num_features: int  # beyond the contract, that were not observed
    reason: str  # why the search ended

    @property
    def parts(self) -> str:
        """The scenarios and the features, in words."""
        left = {
            f"{self.num_scenarios} of {counted(self.num_wanted, 'scenario')}": self.num_scenarios,
            f"{counted(self.num_features, 'feature')} beyond the contract": self.num_features,
        }
        return " and ".join(words for words, number in left.items() if number > 0)

    @override
    def __str__(self) -> str:
        return f"not tried: {self.parts}, since {self.reason}"


@dataclass(frozen=True, slots=True)
class Report(Rendered):
    """The report of a search."""

    subject: str
    backend: str
    seed: int = 0
    examples: int = 0  # number of scenarios played
    seconds: float = 0.0
    # Number of scenarios by topic and feature.
    coverage: dict[str, dict[str, int]] = field(default_factory=dict)
    violations: tuple[FoundViolation, ...] = ()  # one entry per property and cause
    # Number of scenarios by kind of the schedules that were played.
    schedules: dict[str, int] = field(default_factory=dict)
    explored: tuple[str, ...] = ()  # more facts about the runs, in words
    summary: CoverageSummary = field(default_factory=CoverageSummary)
    contract: str = ""  # in words
    contract_choice: str = ""
    beyond: tuple[ObservedFeature, ...] = ()  # features beyond the contract
    # Whether a wrong feature beyond the contract fails the run.
    fails_on_wrong: bool = False
    is_interrupted: bool = False  # whether more was to be played
    # Lines of the subject that ran in a scenario, and the others.
    lines: LineCoverage = field(default_factory=LineCoverage)
    num_refused: int = 0  # scenarios of plain steps that the subject refused, as it may
    most_steps: int = 0  # of a run that came to its end; 0 if it is unknown
    # Whether one recorded scenario was played, and nothing was searched.
    is_replay: bool = False
    not_tried: NotTried | None = None
    # Whether the constructor or `bind()` raised at one line in each scenario, which ended the
    # search.
    always_raises: bool = False
    bound: Bound | None = None  # of a search of all scenarios of a scope
    # File from which the search would go on, to delete once the report is written.
    campaign: Path | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        subject: Subject,
        backend: str,
        violations: Iterable[FoundViolation] = (),
        **others: Any,
    ) -> Self:
        """Return a report of a subject; `others` are more fields."""
        return cls(
            subject.name,
            backend,
            violations=tuple(violations),
            contract=subject.capabilities.in_words(),
            contract_choice=subject.contract_choice,
            **others,
        )

    @property
    def names(self) -> dict[str, str]:
        """The subject, its backend and its contract, as the lines that replay a token take them."""
        return {
            "subject": self.subject,
            "backend": self.backend,
            "contract": self.contract_choice,
        }

    @property
    def verifies_nothing(self) -> bool:
        """Tell whether no scenario was judged, or none but those that the subject refused."""
        return not self.violations and self.num_refused >= self.examples

    @property
    def has_failed(self) -> bool:
        """Tell whether the run fails: a violation, or a wrong feature where that counts."""
        wrong = self.fails_on_wrong and with_rating(self.beyond, "wrong")
        return bool(self.violations or wrong)

    def gap(
        self, percent_of_pairs: float | None, percent_of_lines: float | None = None
    ) -> str | None:
        """Return why a report without violations is no pass; None if it is one."""
        if self.examples == 0 and not self.violations:  # saved ones are played first
            return "no scenario was judged, so nothing is known; raise the time limit"
        if self.verifies_nothing:
            return (
                "the subject refused every scenario, so nothing is known; remove the "
                "values that it supports from `refused` in its contract"
            )
        gap = self.bound.gap if self.bound and not self.violations else None
        if gap is None and percent_of_pairs is not None:
            gap = self.summary.gap(percent_of_pairs)
        if gap is None and percent_of_lines is not None:
            gap = self.lines.gap(percent_of_lines)
        return gap
