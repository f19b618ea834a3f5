"""The tables of words in docs/training-programs.md, from the feature table."""

from collections.abc import Callable
from functools import partial
from typing import Final

from studies.documents import Document, table
from syncverify.scenario.feature_row import Feature, base_word
from syncverify.scenario.feature_table import OPTIONAL, WORDS

_TOPICS: Final = (
    *("event", "used", "readiness", "synchronizers", "launch", "replicas", "update"),
)


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
    *(_part(f"words of {topic}", partial(_words, topic)) for topic in _TOPICS),
    _part("variants", _variants),
)
