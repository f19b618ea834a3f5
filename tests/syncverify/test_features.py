"""What a subject owes for what is special about a scenario."""

from syncverify.features import without_excuses
from syncverify.subject import Capabilities


def test_without_excuses_what_may_be_refused_is_outside() -> None:
    strict = without_excuses(Capabilities())
    assert not strict.covers("listed", "twice")
    assert not strict.covers("event", "tail")
    assert strict.covers("event", "rebind")
    assert strict.covers("use", "twice")


def test_what_is_promised_is_no_excuse() -> None:
    able = Capabilities(promises=frozenset({"listed=twice", "event"}))
    strict = without_excuses(able)
    assert strict.covers("listed", "twice")
    assert strict.covers("event", "tail")
    assert not strict.covers("used", "never")


def test_what_is_outside_stays_outside() -> None:
    able = Capabilities(outside=frozenset({"use", "event", "listed=twice"}))
    assert without_excuses(able).outside >= able.outside
