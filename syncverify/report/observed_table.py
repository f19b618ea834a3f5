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
    "wrong": "a wrong gradient without a word, or a race",
    "hangs": "some rank never ends",
    "unclear": "a crash, or an error without words",
    "refused": "a clear error in some scenario",
    "right": "the right gradient in each scenario",
    "not tried": "no scenario, for the reason given",
}
_WIDTH: Final = 100
_VIOLATED: Final = (
    "  the contract is violated as well: a word may come from that violation"
)


def table_lines(
    observed: Sequence[ObservedFeature], *, is_violated: bool = False
) -> Iterator[str]:
    """Yield the table, worst features first; no line without features.

    `is_violated` says that the subject violates its contract as well.
    """
    if not observed:
        return
    yield f"{_title(observed)}, one feature at a time"
    if is_violated:
        yield _VIOLATED
    for word in WORDS:
        listed = with_word(observed, word)
        if listed:
            yield f"  {word}: {len(listed)} ({_MEANINGS[word]})"
            yield from _lines_of_word(word, listed)


def in_one_line(
    observed: Sequence[ObservedFeature], *, is_violated: bool = False
) -> Iterator[str]:
    """Yield a line with the number of features of each word; none without features."""
    counts = [(word, len(with_word(observed, word))) for word in WORDS]
    words = ", ".join(f"{count} {word}" for word, count in counts if count)
    if observed:
        yield f"{_title(observed)}: {words} (--tables lists them)"
        if is_violated:
            yield _VIOLATED


def _title(observed: Sequence[ObservedFeature]) -> str:
    features = counted(len(observed), "feature")
    scenarios = counted(sum(each.num_scenarios for each in observed), "scenario")
    return f"beyond the contract, observed and not judged: {features} in {scenarios}"


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


def in_one_clause(
    observed: Sequence[ObservedFeature], *, names_all_wrong: bool = False
) -> str:
    """Say which features are wrong, hang, end unclearly, or were not reached; "" for none."""
    parts = list[str]()
    for word, words in (
        ("wrong", "wrong without a word"),
        ("hangs", "left hanging"),
        ("unclear", "ended by an unclear error"),
    ):
        names = [each.feature for each in with_word(observed, word)]  # type: ignore[arg-type]  # a literal
        if names:
            verb = "feature is" if len(names) == 1 else "features are"
            shown = len(names) if names_all_wrong and word == "wrong" else 3
            parts.append(f"{len(names)} {verb} {words}: {_few(names, shown)}")
    for reason in (OUT_OF_TIME, INTERRUPTED):
        count = sum(each.reason == reason for each in observed)
        if count:
            verb = "feature was" if count == 1 else "features were"
            parts.append(f"{count} {verb} not tried: {reason}")
    return f"; beyond it {', and '.join(parts)}" if parts else ""


def _few(names: Sequence[str], shown: int) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
