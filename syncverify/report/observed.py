"""Features beyond the contract: their ratings, the table of them, and the contract that they make."""

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from syncverify.plain_text import counted, first_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.features import optional_features
from syncverify.search.budget import OUT_OF_TIME
from syncverify.search.found_violation import FoundViolation
from syncverify.search.observation import INTERRUPTED, RATINGS, Rating, rating_of

# Ratings for which a report keeps the simplest scenario and its diagnosis.
EXPLAINED: tuple[Rating, ...] = ("wrong", "hangs", "unclear")
_MEANINGS: Final[dict[Rating, str]] = {
    "wrong": "a wrong gradient without an error, or a race",
    "hangs": "some rank never ends",
    "unclear": "a crash, or an error without an explanation",
    "refused": "a clear error in some scenario",
    "right": "the right gradient in each scenario",
    "not tried": "no scenario, for the reason given",
}
# Verbs of one line, for one feature and for several; other ratings are words for both.
_WRONGS: Final = "a wrong gradient without an error"
_VERBS: Final[dict[Rating, tuple[str, str]]] = {
    "wrong": (f"gives {_WRONGS}", f"give {_WRONGS}"),
    "hangs": ("hangs", "hang"),
}
# The order of one line, which differs from that of the table.
_IN_ONE_LINE: Final[tuple[Rating, ...]] = ("right", *EXPLAINED, "refused", "not tried")
_EARLY_ENDS: Final = {OUT_OF_TIME, INTERRUPTED}
_WIDTH: Final = 100
_VIOLATED: Final = "  the contract is violated too, and may cause some of these ratings"
_TEXTS: Final = ("reason", "summary", "token", "diagnosis")  # in JSON unless empty


@dataclass(frozen=True, slots=True)
class ObservedFeature:
    """One feature beyond the contract."""

    feature: str
    rating: Rating
    counts: dict[Rating, int] = field(default_factory=dict)
    reason: str = ""
    # One sentence about the simplest scenario that is neither right nor refused, the token of
    # that scenario, and its whole violation as text.
    summary: str = ""
    token: str = ""
    diagnosis: str = ""

    @property
    def num_scenarios(self) -> int:
        """Return the number of scenarios that were judged."""
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, without the empty ones."""
        more = {key: getattr(self, key) for key in _TEXTS if getattr(self, key)}
        own = {"feature": self.feature, "word": self.rating}
        return {**own, "scenarios": {**self.counts}, **more}


def with_rating(
    observed: Sequence[ObservedFeature], rating: Rating
) -> list[ObservedFeature]:
    """List the features with a rating, in the order of the report."""
    return [each for each in observed if each.rating == rating]


def table_lines(
    observed: Sequence[ObservedFeature],
    *,
    is_violated: bool = False,
    fails_on_wrong: bool = False,
) -> Iterator[str]:
    """Yield the table, worst features first; no line without features."""
    if not observed:
        return
    scenarios = counted(sum(each.num_scenarios for each in observed), "scenario")
    yield f"{_title(observed, fails_on_wrong=fails_on_wrong)}, one at a time in {scenarios}"
    if is_violated:
        yield _VIOLATED
    for rating in RATINGS:
        listed = with_rating(observed, rating)
        if listed:
            yield f"  {rating}: {len(listed)} ({_MEANINGS[rating]})"
            yield from _lines_of_rating(rating, listed)


def in_one_line(
    observed: Sequence[ObservedFeature],
    *,
    is_violated: bool = False,
    fails_on_wrong: bool = False,
) -> Iterator[str]:
    """Yield a line with the number of features of each rating; none without features."""
    if not observed:
        return
    skip = "" if fails_on_wrong else ", --no-beyond skips them"
    counts = list[str]()
    for rating in _IN_ONE_LINE:
        if listed := with_rating(observed, rating):
            of_one, of_more = _VERBS.get(rating, (rating, rating))
            ends = sorted({e.reason for e in listed} & _EARLY_ENDS)
            why = f", since {' and '.join(ends)}" if ends else ""
            counts.append(
                f"{len(listed)} {of_one if len(listed) == 1 else of_more}{why}"
            )
    title = _title(observed, fails_on_wrong=fails_on_wrong)
    yield f"{title}: {', '.join(counts)} (--tables lists them{skip})"
    if is_violated:
        yield _VIOLATED


def _title(observed: Sequence[ObservedFeature], *, fails_on_wrong: bool) -> str:
    features = counted(len(observed), "feature")
    why = ", because this contract sets `fail_on_wrong`" if fails_on_wrong else ""
    part = "part" if fails_on_wrong else "not part"
    return f"{part} of the verdict{why}: {features} that the contract does not promise"


def _lines_of_rating(
    rating: Rating, listed: Sequence[ObservedFeature]
) -> Iterator[str]:
    if rating in EXPLAINED:
        for number, each in enumerate(listed, start=1):
            scenarios = counted(each.num_scenarios, "scenario")
            count = f"{each.counts[rating]} of {scenarios}"
            yield f"    {number:>2} {each.feature}, {count}: {each.summary}"
        return
    is_tried = rating != "not tried"
    groups = defaultdict[str, list[str]](list)  # by topic, or by the reason
    for each in listed:
        topic, value = Feature.of(each.feature)
        groups[topic if is_tried else each.reason].append(
            value if is_tried else each.feature
        )
    for about, names in groups.items():
        # An end that came early says nothing about one feature or another.
        shown = first_of(names, 3 if about in _EARLY_ENDS else len(names))
        text = f"{about}: {shown}" if is_tried else f"{shown}: {about}"
        for line in textwrap.wrap(text, _WIDTH - 4, break_on_hyphens=False):
            yield f"    {line}"


def names_of_wrong(observed: Sequence[ObservedFeature]) -> str:
    """Name the features that fail a run."""
    names = [each.feature for each in with_rating(observed, "wrong")]
    subject = "feature gives" if len(names) == 1 else "features give"
    return f"{len(names)} {subject} {_WRONGS}: {', '.join(names)}"


def found_contract(
    plain: Capabilities, observed: Sequence[ObservedFeature]
) -> Capabilities:
    """Return the contract of the features that were right or refused."""
    right, refused = (
        frozenset(each.feature for each in with_rating(observed, rating))
        for rating in ("right", "refused")
    )
    return replace(plain, right=right, refused=refused)


def comments_of_contract(
    observed: Sequence[ObservedFeature], subject: str, seed: int
) -> dict[str, str]:
    """Return the comments of the file of a found contract, by field."""
    num_scenarios = sum(each.num_scenarios for each in observed)
    lines = [
        f"The contract that {subject} keeps: found by `syncverify probe {subject}` in",
        f"{num_scenarios} scenarios, seed {seed}. From now on it is a regression test:",
        f"    syncverify run {subject} --contract THIS_FILE",
    ]
    lines += (
        f"{rating}: {each.feature}"
        for rating in (*EXPLAINED, "not tried")
        for each in with_rating(observed, rating)
    )
    return {
        "": "\n".join(lines),
        "table_version": "Version of the feature table whose values are meant.",
        "right": "The gradient is right.",
        "refused": "The gradient is right, or a clear error says why not.",
    }


def corrected(
    observed: Sequence[ObservedFeature], found: FoundViolation, diagnosis: str
) -> list[ObservedFeature]:
    """Return features, with a worse rating for those of a scenario that violates the found contract.

    A feature that was right in each scenario and raises in another one is refused, until its
    error turns out to be unclear. The diagnosis is the violation as text.
    """
    blamed = set(map(str, optional_features(found.scenario)))
    corrected = [*observed]
    for place, each in enumerate(observed):
        if each.feature in blamed:
            others = ", ".join(sorted(blamed - {each.feature}))
            together = f" (together with {others})" if others else ""
            rating = rating_of(found.violation.identity)
            if rating == "unclear" and each.rating == "right":
                rating = "refused"
            corrected[place] = replace(
                each,
                rating=rating,
                counts={**each.counts, rating: each.counts.get(rating, 0) + 1},
                summary=found.violation.summary + together,
                token=found.token,
                diagnosis=diagnosis,
            )
    return corrected


def compared(own: Capabilities, observed: Sequence[ObservedFeature]) -> Iterator[str]:
    """Yield a line for each feature whose rating differs from the promise of a contract."""
    if own.asks_plain_steps_alone:  # there is no promise to compare with
        return
    for each in observed:
        feature, rating = Feature.of(each.feature), each.rating
        promise = "refused" if own.may_refuse(*feature) else "right"
        agrees = rating in {"right", "not tried", promise}
        if not own.covers(*feature):
            promise, agrees = "not asked", rating not in {"right", "refused"}
        if not agrees:
            yield f"differs: {each.feature} is {rating}, and the contract says {promise}"
