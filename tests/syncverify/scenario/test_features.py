"""A contract without the features that a subject may refuse with a clear error."""

from dataclasses import replace

from syncverify.scenario.contract import EVERYTHING
from syncverify.scenario.features import without_clear_errors


def test_features_that_may_be_refused_are_left_out() -> None:
    strict = without_clear_errors(EVERYTHING)
    assert not strict.covers("listed", "twice")
    assert not strict.covers("event", "tail")
    assert strict.covers("event", "rebind")
    assert strict.covers("use", "twice")


def test_features_that_are_promised_right_stay() -> None:
    capabilities = replace(EVERYTHING, right=frozenset({"listed=twice", "event"}))
    strict = without_clear_errors(capabilities)
    assert strict.covers("listed", "twice")
    assert strict.covers("event", "tail")
    assert not strict.covers("used", "never")


def test_features_outside_stay_outside() -> None:
    capabilities = replace(
        EVERYTHING, outside=frozenset({"use", "event", "listed=twice"})
    )
    assert without_clear_errors(capabilities).outside >= capabilities.outside
