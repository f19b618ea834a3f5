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
)
