"""Tables of pages that follow from the code: causes, formats and words."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from studies.documents import Document, table
from syncverify.judge.causes import CAUSES
from syncverify.judge.causes.of_trainings import OF_TRAININGS
from syncverify.judge.evidence import Evidence
from syncverify.report.hints import certainty
from syncverify.scenario.feature_row import Feature, base_word
from syncverify.scenario.feature_table import OPTIONAL, WORDS
from syncverify.scenario.settings import REPORT_FORMATS

_TOPICS: Final = (
    *("event", "used", "readiness", "synchronizers", "launch", "replicas", "update"),
)


def _causes() -> str:
    """Return the table of all causes that a violation may have."""
    head = "cause", "the mistake", "certainty without the trace", "repair to try first"
    return "\n".join(table(head, _rows_of_causes()))


def _rows_of_causes() -> Iterator[tuple[str, ...]]:
    for cause, mistake in CAUSES.items():
        sure = certainty(cause, Evidence(is_proven=False)).partition(":")[0]
        sure = sure if sure in {"certain", "likely"} else "open"
        sure = "-" if cause in OF_TRAININGS else sure
        yield f"`{cause}`", mistake.meaning, sure, mistake.hint


def _formats() -> str:
    """Return the table of the values of `--format`."""
    rows = (
        (f"`{name}`", words or "text alone.") for name, words in REPORT_FORMATS.items()
    )
    return "\n".join(table(("`--format`", "what it prints"), rows))


def _words(topic: str) -> str:
    """Return the table of a topic: each word, its meaning and its promise."""
    rows = (
        (f"`{word}`", row.meaning, _promise(topic, word))
        for word, row in WORDS[topic].items()
        if word == base_word(word)
    )
    return "\n".join(table((f"`{topic}`", "what it means", "must be"), rows))


def _promise(topic: str, word: str) -> str:
    return OPTIONAL.get(Feature(topic, word), "right").replace("_", " ")


def _variants() -> str:
    """Return the table of variants."""
    rows = (
        (f"`{topic}`", f"`{word}`", row.meaning)
        for topic in WORDS
        for word, row in WORDS[topic].items()
        if word != base_word(word)
    )
    return "\n".join(table(("topic", "variant", "what it means"), rows))


def _part(name: str, text: Callable[[], str]) -> Document:
    return Document("docs/training-programs.md", text, name)


PARTS: Final = (
    Document("docs/reference/causes.md", _causes, "causes"),
    Document("docs/ci.md", _formats, "formats"),
    *(_part(f"words of {topic}", partial(_words, topic)) for topic in _TOPICS),
    _part("variants", _variants),
)
