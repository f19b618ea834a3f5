"""The table of features beyond the contract, as text."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from syncverify.plain_text import counted, first_of
from syncverify.report.fitting import MAX_LINES, fitted
from syncverify.report.observed import EXPLAINED, ObservedFeature, with_rating
from syncverify.scenario.feature_row import Feature
from syncverify.search.budget import OUT_OF_TIME
from syncverify.search.observation import INTERRUPTED, RATINGS, Rating

_MEANINGS: Final[dict[Rating, str]] = {
    "wrong": "a wrong gradient without an error, or a race",
    "hangs": "some rank never ends",
    "unclear": "a crash, or an error without an explanation",
    "refused": "a clear error in some scenario",
    "right": "the right gradient in each scenario",
    "not tried": "no scenario, for the reason given",
}
# Texts of one line, for one feature and for several.
_IN_ONE_LINE: Final[dict[Rating, tuple[str, str]]] = {
    "right": ("right", "right"),
    "wrong": (
        "gives a wrong gradient without an error",
        "give a wrong gradient without an error",
    ),
    "hangs": ("hangs", "hang"),
    "unclear": ("unclear", "unclear"),
    "refused": ("refused", "refused"),
    "not tried": ("not tried", "not tried"),
}
_SKIP: Final = "--no-beyond skips them"
_NOT_JUDGED: Final = "not part of the verdict"
_FAILS: Final = "part of the verdict, because this contract sets `fail_on_wrong`"
_WIDTH: Final = 100
_VIOLATED: Final = "  the contract is violated too, and may cause some of these ratings"


def table_lines(
    observed: Sequence[ObservedFeature],
    *,
    is_violated: bool = False,
    fails_on_wrong: bool = False,
) -> Iterator[str]:
    """Yield the table, worst features first; no line without features.

    `is_violated` says that the subject violates its contract as well, and `fails_on_wrong`
    that a wrong feature fails the run.
    """
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
    options = "--tables lists them" + ("" if fails_on_wrong else f", {_SKIP}")
    counts = ", ".join(_counts(observed))
    yield f"{_title(observed, fails_on_wrong=fails_on_wrong)}: {counts} ({options})"
    if is_violated:
        yield _VIOLATED


def _title(observed: Sequence[ObservedFeature], *, fails_on_wrong: bool) -> str:
    features = counted(len(observed), "feature")
    title = _FAILS if fails_on_wrong else _NOT_JUDGED
    return f"{title}: {features} that the contract does not promise"


def _counts(observed: Sequence[ObservedFeature]) -> Iterator[str]:
    """Yield for each rating the number of its features, and the reason of an early end."""
    for rating, (of_one, of_more) in _IN_ONE_LINE.items():
        listed = with_rating(observed, rating)
        ends = sorted({e.reason for e in listed} & {OUT_OF_TIME, INTERRUPTED})
        why = f", since {' and '.join(ends)}" if ends else ""
        if listed:
            yield f"{len(listed)} {of_one if len(listed) == 1 else of_more}{why}"


def _lines_of_rating(
    rating: Rating, listed: Sequence[ObservedFeature]
) -> Iterator[str]:
    if rating in EXPLAINED:
        for number, each in enumerate(listed, start=1):
            scenarios = counted(each.num_scenarios, "scenario")
            count = f"{each.counts[rating]} of {scenarios}"
            yield f"    {number:>2} {each.feature}, {count}: {each.summary}"
    elif rating == "not tried":
        by_reason = defaultdict[str, list[str]](list)
        for each in listed:
            by_reason[each.reason].append(each.feature)
        for reason, names in by_reason.items():
            # An end that came early says nothing about one feature or another.
            shown = 3 if reason in (OUT_OF_TIME, INTERRUPTED) else len(names)
            yield from _wrapped(f"{first_of(names, shown)}: {reason}")
    else:
        by_topic = defaultdict[str, list[str]](list)
        for each in listed:
            topic, value = Feature.of(each.feature)
            by_topic[topic].append(value)
        for topic, values in by_topic.items():
            yield from _wrapped(f"{topic}: {', '.join(values)}")


def _wrapped(text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=" " * 4,
        subsequent_indent=" " * 4,
        break_on_hyphens=False,
    )


def wrong_in_full(observed: Sequence[ObservedFeature]) -> list[str]:
    """Describe the wrong features on one screen: by diagnoses, and in a line where none fits."""
    listed = with_rating(observed, "wrong")
    room = MAX_LINES - len(listed) - 2  # an empty line and the verdict follow
    full, brief = list[str](), list[str]()
    for number, each in enumerate(listed, start=1):
        title = f"WRONG {number} of {len(listed)}: {each.feature}, beyond the contract"
        lines = [title, *each.diagnosis.splitlines(), ""]
        if len(full) + len(lines) <= room:
            full += lines
        else:
            place = f"syncverify explain report.json#wrong/{number}"
            brief.append(f"{title}: {each.summary}: {place}")
    return fitted([*full, brief], MAX_LINES - 2)


def names_of_wrong(observed: Sequence[ObservedFeature]) -> str:
    """Name the features that fail a run."""
    names = [each.feature for each in with_rating(observed, "wrong")]
    verb = "feature gives" if len(names) == 1 else "features give"
    return f"{len(names)} {verb} a wrong gradient without an error: {', '.join(names)}"
