"""Assert that a scenario that was played is right."""

from syncverify.faces.one_play import PlayedScenario
from syncverify.report.run import explanation_of
from syncverify.search.isolation import is_reported, unexplained


@unexplained
def assert_right(played: PlayedScenario) -> None:
    """Raise unless all properties hold in a scenario that was played.

    Inside a Hypothesis test the failure that Hypothesis reports has a fix and a witness; those
    on the way to it have none (`Note [Plays inside a test]`).

    Raises:
        AssertionError: A property is violated; the message is the diagnosis of each.
    """
    __tracebackhide__ = True  # pytest shows the user's lines and the diagnosis
    if not played.is_right:
        raise AssertionError(_message(played.diagnosed() if is_reported() else played))


def _message(played: PlayedScenario) -> str:
    first, backend = played.violations[0].violation, played.backend
    names = {"subject": played.subject, "backend": backend, "contract": played.contract}
    texts = [explanation_of(each, **names).text() for each in played.violations]
    return "\n\n".join([f"{first.property}: {first.summary}", *texts])
