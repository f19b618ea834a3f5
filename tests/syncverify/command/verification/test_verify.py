"""The error that holds a report, and the observation of features beyond the contract."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from syncverify.command.verification.reported_search import (
    ObservationInterrupted,
    with_features,
)
from syncverify.command.verification.verify import PropertyViolation
from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.report.observed import in_one_line
from syncverify.report.report import Report
from syncverify.report.text import verdict
from syncverify.search.found_violation import FoundViolation
from syncverify.search.observation import Observing, RatedFeature, Rating
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter

PLAN = Observing(num_scenarios=1, num_simpler=0, max_ranks=2)
FEATURES = ["event=rebind", "use=twice", "use=masked"]
PLAYED_ALONE = Report("mine:Sync", "sim", 7, 20, 1.25, {}, ())


class Observed:
    """Stands for the observation; notes what is played and told, and may be interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, interrupted_at: str) -> None:
        self.interrupted_at = interrupted_at
        self.log = list[str]()
        module = "syncverify.command.verification.reported_search"
        monkeypatch.setattr(f"{module}.features_beyond", lambda _: FEATURES)
        monkeypatch.setattr(f"{module}.observe", self.observe)

    def observe(self, *_arguments: object) -> Iterator[RatedFeature]:
        for feature in FEATURES:
            if feature == self.interrupted_at:
                raise KeyboardInterrupt
            self.log.append(f"played {feature}")
            yield RatedFeature(feature, "right")

    def tell(
        self, feature: str, number: int, total: int, rating: Rating | None
    ) -> None:
        self.log.append(f"{number} of {total}: {feature} {rating}")

    def report(self) -> Report:
        subject = resolve("synchronizer")
        observing = replace(PLAN, tell=self.tell)
        return with_features(PLAYED_ALONE, subject, SimBackend(), observing, ())


def test_a_feature_is_reported_before_it_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observed = Observed(monkeypatch, interrupted_at="")
    assert [each.rating for each in observed.report().beyond] == ["right"] * 3
    assert observed.log[:4] == [
        "1 of 3: event=rebind None",
        "played event=rebind",
        "1 of 3: event=rebind right",
        "2 of 3: use=twice None",
    ]


def test_an_interrupt_keeps_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed(monkeypatch, interrupted_at="use=twice")
    with pytest.raises(ObservationInterrupted) as caught:
        observed.report()
    assert [(each.rating, each.reason) for each in caught.value.report.beyond] == [
        ("right", ""),
        ("not tried", "the run was interrupted"),
        ("not tried", "the run was interrupted"),
    ]
    assert verdict(caught.value.report) == (
        "NO VIOLATION: mine:Sync held all properties (20 scenarios on sim, seed 7, 1.2 s)"
    )
    assert list(in_one_line(caught.value.report.beyond)) == [
        (
            "not part of the verdict: 3 features that the contract does not promise: 1 right, "
            "2 not tried, since the run was interrupted (--tables lists them, --no-beyond "
            "skips them)"
        )
    ]


def test_the_first_line_of_the_error_tells_the_first_violation() -> None:
    scenario = one_parameter(1, "p0", (1,), cap_bytes=64)
    violation = Violation("replicas_agree", "replicas_differ", "they differ")
    entry = FoundViolation(violation, scenario)
    assert _first_line(entry) == "replicas_agree: they differ"
    assert _first_line(entry, entry) == "replicas_agree (and 1 more): they differ"
    assert _first_line().startswith("NO VIOLATION: ")


def _first_line(*entries: FoundViolation) -> str:
    error = PropertyViolation(replace(PLAYED_ALONE, violations=entries))
    return str(error).splitlines()[0]
