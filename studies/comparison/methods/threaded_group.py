"""Values on torch's threaded process group, where ranks are threads."""

from itertools import chain

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm
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
    "Ranks are threads of one process over the threaded process group of torch's own tests "
    "(`MultiThreadedTestCase`). After each `wait()` of the 10 steps, gradients are compared "
    "with our reference, exactly. Without the reference this method would have nothing to "
    "compare. By construction the method cannot see streams, lifetimes, hooks left behind or "
    "needless reductions. It cannot see a forgotten `wait()` either: a collective is complete "
    "when its call returns. No schedule is chosen; the timing is that of the threads.",
)
