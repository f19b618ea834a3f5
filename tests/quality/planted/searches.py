"""Searches for the planted defects that have fixed scenarios: what to ask for, and how."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from planted import semantics, timing
from planted.bank import EXCLUSIVE, MATCH, READ, VALUE
from planted.divergence_bank import DIVERGENCES
from planted.feature_bank import FeatureDefect
from planted.graph_bank import GRAPH_DEFECTS
from planted.lifecycle_bank import LIFECYCLE_DEFECTS
from planted.modules import MODULE_DEFECTS
from planted.space import SPACE
from planted.stream_bank import STREAM_DEFECTS

from strategies.search import search
from strategies.search_result import Found, SearchPlan
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.features import BEYOND
from syncverify.subject import resolve
from syncverify.verification import SilentProgress

EVERYTHING = frozenset(
    f"{topic}={value}" for topic in BEYOND for value in BEYOND[topic]
)


class _AllBut(frozenset[tuple[str, str]]):
    """All identities but one, which alone is made small."""

    def __new__(cls, identity: tuple[str, str]) -> "_AllBut":
        return super().__new__(cls, [identity])

    def __contains__(self, identity: object) -> bool:
        return not super().__contains__(identity)


@dataclass(frozen=True)
class Search:
    """A search for one defect.

    Attributes:
        name: Of the subject, and of the feature that it takes.
        subject: The synchronizer that has the defect.
        features: Which scenarios may have, beyond the plain case; None leaves that to the
            subject's own capabilities.
        identity: Property and cause that are looked for.
        examples: Scenarios within which it is met.
        ranks: Largest world to try.
    """

    name: str
    subject: type[Any]
    features: frozenset[str] | None
    identity: tuple[str, str]
    examples: int = 60
    ranks: int = 4

    def smallest(self, seed: int) -> Found | None:
        """Search, and return what the violation looked for was made into."""
        plan = SearchPlan(self.ranks, self.examples, seed, known=_AllBut(self.identity))
        subject = resolve(self.narrowed())
        result = search(subject, SimBackend(), plan, SilentProgress())
        return next(
            (f for f in result.found if f.violation.identity == self.identity), None
        )

    def narrowed(self) -> type[Any]:
        """Return the subject as one that promises these features, and covers no other."""
        if self.features is None:
            return self.subject
        own = resolve(self.subject).capabilities
        capabilities = replace(
            own,
            outside=EVERYTHING - self.features,
            promises=own.promises | self.features,
        )
        return type(self.name, (self.subject,), {"capabilities": capabilities})


def of_features(defects: list[FeatureDefect], examples: int) -> Iterator[Search]:
    for defect in defects:
        features = defect.needs | {defect.feature}
        name = f"{defect.subject.__name__} {defect.feature}"
        identity = (defect.property, defect.cause)
        yield Search(name, defect.subject, features, identity, examples)


def of_graphs() -> Iterator[Search]:
    for defect in GRAPH_DEFECTS:
        for feature in sorted(defect.drawn):
            name = f"{defect.subject.__name__} {feature}"
            yield Search(name, defect.subject, frozenset({feature}), defect.identity)


def of_streams() -> Iterator[Search]:
    for defect in STREAM_DEFECTS:
        identity = (defect.property, defect.cause)
        yield Search(defect.subject.__name__, defect.subject, None, identity)


def of_time_and_ranks() -> Iterator[Search]:
    for subject, identity in (
        (timing.FallsThrough, (VALUE, "rank_contribution_missing")),
        (timing.FirstComeIsRankZero, (MATCH, "collective_mismatch")),
        (timing.IgnoresNotYet, (READ, "read_before_reduced")),
        (timing.WaitsInRandomOrder, ("subject_is_deterministic", "acts_otherwise")),
        (
            timing.WaitsInOrderOfAddresses,
            ("subject_is_deterministic", "acts_otherwise"),
        ),
        (semantics.RefillsAfterALaterWait, (EXCLUSIVE, "touched_in_flight")),
        (semantics.TakesReturnForDone, (READ, "read_before_reduced")),
        *((entry_of(name).subject, first) for name, _, first, *_ in DIVERGENCES),
    ):
        yield Search(subject.__name__, subject, None, identity, examples=20)


SEARCHES = [
    *of_streams(),
    *of_time_and_ranks(),
    *of_features(SPACE, 60),
    *of_features(LIFECYCLE_DEFECTS, 60),
    *of_features(MODULE_DEFECTS, 100),
    *of_graphs(),
]
