"""The table of features beyond the contract, as text."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from syncverify.plain_text import counted
from syncverify.report.fitting import MAX_LINES, fitted
from syncverify.report.observed import EXPLAINED, ObservedFeature, with_word
from syncverify.search.observation import INTERRUPTED, OUT_OF_TIME, WORDS, Word

_MEANINGS: Final[dict[Word, str]] = {
    "wrong": "a wrong gradient without an error, or a race",
    "hangs": "some rank never ends",
    "unclear": "a crash, or an error without words",
    "refused": "a clear error in some scenario",
    "right": "the right gradient in each scenario",
    "not tried": "no scenario, for the reason given",
}
# Words of one line, for one feature and for several.
_IN_ONE_LINE: Final[dict[Word, tuple[str, str]]] = {
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
_FAILS: Final = "part of the verdict, since this contract fails on a wrong one"
_WIDTH: Final = 100
_VIOLATED: Final = (
    "  the contract is violated as well: a word may come from that violation"
)


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
    for word in WORDS:
        listed = with_word(observed, word)
        if listed:
            yield f"  {word}: {len(listed)} ({_MEANINGS[word]})"
            yield from _lines_of_word(word, listed)


def in_one_line(
    observed: Sequence[ObservedFeature],
    *,
    is_violated: bool = False,
    fails_on_wrong: bool = False,
) -> Iterator[str]:
    """Yield a line with the number of features of each word; none without features."""
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
    """Say of each word how many features have it, and of an early end what it was."""
    for word, (of_one, of_more) in _IN_ONE_LINE.items():
        listed = with_word(observed, word)
        ends = sorted({e.reason for e in listed} & {OUT_OF_TIME, INTERRUPTED})
        why = f", since {' and '.join(ends)}" if ends else ""
        if listed:
            yield f"{len(listed)} {of_one if len(listed) == 1 else of_more}{why}"


def _lines_of_word(word: Word, listed: Sequence[ObservedFeature]) -> Iterator[str]:
    if word in EXPLAINED:
        for number, each in enumerate(listed, start=1):
            scenarios = counted(each.num_scenarios, "scenario")
            count = f"{each.counts[word]} of {scenarios}"
            yield f"    {number:>2} {each.feature}, {count}: {each.summary}"
    elif word == "not tried":
        by_reason = defaultdict[str, list[str]](list)
        for each in listed:
            by_reason[each.reason].append(each.feature)
        for reason, names in by_reason.items():
            # An end that came early says nothing about one feature or another.
            shown = 3 if reason in (OUT_OF_TIME, INTERRUPTED) else len(names)
            yield from _wrapped(f"{_few(names, shown)}: {reason}")
    else:
        by_topic = defaultdict[str, list[str]](list)
        for each in listed:
            topic, _, value = each.feature.partition("=")
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
    listed = with_word(observed, "wrong")
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
    names = [each.feature for each in with_word(observed, "wrong")]
    verb = "feature gives" if len(names) == 1 else "features give"
    return f"{len(names)} {verb} a wrong gradient without an error: {', '.join(names)}"


def _few(names: Sequence[str], shown: int) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
