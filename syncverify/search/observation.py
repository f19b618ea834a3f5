"""Observation of features beyond a contract: one rating for each, and no verdict.

A feature is judged by scenarios in which it is the only one beyond plain training steps. A
violation whose identity is known from plain steps, or from a companion of the feature, says
nothing about the feature and does not count.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.judge.properties.launch_order import launch_order_agrees
from syncverify.judge.properties.lifecycle import (
    every_rank_finishes,
    every_wait_completes,
)
from syncverify.judge.properties.matching import collectives_match_across_ranks
from syncverify.judge.properties.streams import overlap_is_possible
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, OPTIONAL
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, ScheduleChoice
from syncverify.scenario.settings import (
    DEFAULT_RANKS,
    OBSERVED_SCENARIOS,
    OBSERVED_SIMPLER,
)
from syncverify.search.budget import OUT_OF_TIME, Budget, OutOfBudgetError, smallest
from syncverify.search.feature_scenarios import FeatureScenarios, scenarios_of
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Backend, Identity, Judge, JudgedRun
from syncverify.search.result import distinct_identities
from syncverify.search.smaller_scenarios import simpler_scenarios
from syncverify.subjects.subject import Subject

Rating = Literal["wrong", "hangs", "unclear", "refused", "right", "not tried"]
RATINGS: Final[tuple[Rating, ...]] = get_args(Rating)  # the worst first

# Ratings for the properties that a run violates, the worst first. All other properties are
# about gradients, memory and order: a violation is `wrong`. Collectives that do not match
# are the cause of a hang, and wrong only if no rank notices.
_RATING_OF_PROPERTY: Final[dict[str, Rating]] = {
    every_wait_completes.__name__: "hangs",
    every_rank_finishes.__name__: "unclear",
    collectives_match_across_ranks.__name__: "wrong",
    launch_order_agrees.__name__: "wrong",
}
# A rating, and the violation behind it.
RatedRun = tuple[Rating, FoundViolation | None]
# Where scenarios of a feature say nothing, up to so many times as many are played.
_REPLACING: Final = 3
# A promise about speed, which no feature can break.
_ABOUT_SPEED: Final = overlap_is_possible.__name__

# Beside `OUT_OF_TIME`, the reason why a run did not come to a feature.
INTERRUPTED: Final = "the run was interrupted"


@dataclass(frozen=True, slots=True)
class Observing:
    """How much of each feature beyond the contract is observed."""

    num_scenarios: int = OBSERVED_SCENARIOS  # of a feature
    num_simpler: int = OBSERVED_SIMPLER  # runs to simplify its worst scenario
    # Receives a feature, its number from 1, the number of all features, and the rating of the
    # feature: None before it is played.
    tell: Callable[[str, int, int, Rating | None], None] = lambda *_: None
    # Those of the search that comes before.
    max_ranks: int = DEFAULT_RANKS
    random_seed: int = 0
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class RatedFeature:
    """One rating for a feature, and the scenarios behind it."""

    feature: str
    rating: Rating
    counts: Counter[Rating] = field(default_factory=Counter)
    # The violation in the simplest scenario with this rating; None for a feature that is right,
    # refused or not tried.
    found: FoundViolation | None = None
    reason: str = ""


def features_beyond(capabilities: Capabilities) -> list[str]:
    """List the features that a contract does not promise, with newer values of plain steps."""
    newer = {*capabilities.newer_features}
    return [
        str(each)
        for each in FEATURES
        if each in newer or (each in OPTIONAL and not capabilities.covers(*each))
    ]


def observe(
    subject: Subject,
    backend: Backend,
    plan: Observing,
    features: Collection[str],
    known: Collection[Identity] = (),
) -> Iterator[RatedFeature]:
    """Yield one observation for each feature, given as `topic=value`.

    `known` are the identities of violations of plain training steps.
    """
    of_companions = dict[str, set[Identity]]()
    no_data = (
        "collectives of this backend move no data" if backend.name == "fake" else ""
    )
    for feature in features:
        row = FEATURES[Feature.of(feature)]
        reason = subject.not_observed.get(feature) or no_data or row.rare
        if reason:
            yield RatedFeature(feature, "not tried", reason=reason)
            continue
        observing, companion = _observing(feature, subject, backend, plan), row.needs
        ignored = set(known)
        if companion:
            if companion not in of_companions:
                beside = _observing(companion, subject, backend, plan)
                of_companions[companion] = beside.identities(plan.num_scenarios)
            ignored |= of_companions[companion]
        yield observing.result(ignored)


@dataclass(slots=True)
class _FeatureObservation:
    """The observation of one feature."""

    scenarios: FeatureScenarios
    judge: Judge
    plan: Observing
    is_out_of_time: bool = False
    refusal: str = ""  # reason why scenarios were refused; "" if none was

    def identities(self, num_scenarios: int) -> set[Identity]:
        """Return the identities of all violations."""
        runs = self._judged(num_scenarios)
        return {identity for _, judged in runs for identity in judged.violations}

    def result(self, ignored: Collection[Identity]) -> RatedFeature:
        """Play the scenarios, and return the worst rating."""
        counts, worst = Counter[Rating](), dict[Rating, FoundViolation]()
        for rating, found in self._rated_runs(ignored):
            counts[rating] += 1
            if found is not None:
                worst.setdefault(rating, found)
            if rating == "hangs":  # each hang may take seconds
                break
        feature = str(self.scenarios.feature)
        rating = next((each for each in RATINGS if each in counts), "not tried")
        # "right" is of fewer scenarios than were played where some were refused.
        if not counts or (self.refusal and rating == "right"):
            return RatedFeature(feature, "not tried", reason=self._reason())
        simplest = worst.get(rating)
        if simplest is not None and rating != "hangs":
            simplest = self._simplest(simplest)
        return RatedFeature(feature, rating, counts, simplest)

    def _rated_runs(self, ignored: Collection[Identity]) -> Iterator[RatedRun]:
        """Yield a rating for each scenario; others replace those that say nothing."""
        wanted = self.plan.num_scenarios
        judged = dict[Scenario, RatedRun | None]()
        for most in (wanted, _REPLACING * wanted):
            for scenario, run in self._judged(most):
                num_ratings = len(judged) - [*judged.values()].count(None)
                if scenario not in judged and num_ratings < wanted:
                    judged[scenario] = judgement = _rated(run, ignored)
                    if judgement is not None:
                        yield judgement
            if None not in judged.values():
                return

    def _judged(self, num_scenarios: int) -> Iterator[tuple[Scenario, JudgedRun]]:
        for scenario in self.scenarios.smallest_first(num_scenarios):
            try:
                yield scenario, self.judge.judge_schedule(scenario, DEFAULT_SCHEDULE)
            except OutOfBudgetError:
                self.is_out_of_time = True
                return
            except EnvironmentNotSupportedError as error:
                self.refusal = str(error)

    def _reason(self) -> str:
        if self.refusal:
            return self.refusal
        if self.judge.num_runs:
            return "plain training steps are violated already"
        if self.is_out_of_time:
            return OUT_OF_TIME
        return "no scenario of this contract has it"

    def _simplest(self, found: FoundViolation) -> FoundViolation:
        own, has_feature = self.scenarios.capabilities, self.scenarios.has_feature
        self.judge.budget.runs_left = self.plan.num_simpler
        try:
            return smallest(
                found,
                lambda best: filter(has_feature, simpler_scenarios(best.scenario, own)),
                self.judge.shown_in,
            )
        except EnvironmentNotSupportedError:  # of a scenario on the way
            return found


def _observing(
    feature: str, subject: Subject, backend: Backend, plan: Observing
) -> _FeatureObservation:
    listed = scenarios_of(
        feature, subject.capabilities, plan.max_ranks, plan.random_seed
    )
    asked = replace(subject, capabilities=listed.capabilities)
    budget = Budget(deadline=plan.deadline)
    judge = Judge(asked, backend, ScheduleChoice(), plan.random_seed, budget)
    return _FeatureObservation(listed, judge, plan)


def _rated(judged: JudgedRun, ignored: Collection[Identity]) -> RatedRun | None:
    """Return the rating for one run and the worst violation; None if the run says nothing."""
    distinct = distinct_identities(judged.violations)
    counted = [identity for identity in distinct if identity[0] != _ABOUT_SPEED]
    new = [identity for identity in counted if identity not in ignored]
    if (counted and not new) or judged.error in ignored:
        return None
    if not new:
        return ("refused" if judged.error else "right"), None
    ranking = [*_RATING_OF_PROPERTY]
    # All other properties come first.
    worst = min(new, key=lambda one: one[0] in ranking and 1 + ranking.index(one[0]))
    return rating_of(worst), judged.violations[worst]


def rating_of(identity: Identity) -> Rating:
    """Return the rating for a feature whose scenario shows a violation."""
    return _RATING_OF_PROPERTY.get(identity[0], "wrong")
