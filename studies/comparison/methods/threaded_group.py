"""torch's threaded process group: are values right where ranks are threads?"""

from itertools import chain

from comparison.methods.method import Method
from comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.values import (
    gradient_equals_reference,
    unreduced_stay_local,
)


def values_are_right(judgement: Judgement) -> Verdict:
    """Compare gradients after each `wait()` with the reference, exactly.

    Args:
        judgement: A run on threads.

    Returns:
        An alarm at the first wrong gradient.
    """
    found = chain(gradient_equals_reference(judgement), unreduced_stay_local(judgement))
    first = next(found, None)
    return SILENT if first is None else alarm(first.summary)


THREADED_GROUP = Method(
    "threaded_group",
    "threaded group, values",
    "threads",
    values_are_right,
    "Ranks are threads of one process over torch's own threaded process group, which its "
    "tests use (`MultiThreadedTestCase`), and gradients after each `wait()` of the 10 steps "
    "are compared with our reference, exactly: without the reference this method would have "
    "nothing to compare. By construction it cannot see a `wait()` that was forgotten, since "
    "a collective is done when it returns, nor streams, lifetimes, hooks left behind and "
    "reductions that are not needed; the threads alone decide the timing.",
)
