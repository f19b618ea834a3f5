"""Strategies for schedules: the choices that timing would make in a run."""

import functools

from hypothesis import strategies as st

from syncverify.scenario.schedule import Schedule

_MAX_DEVIATIONS = 8
# An option beyond the last one wraps around. Larger numbers would add ranks far behind.
_MAX_OPTION = 3


@functools.lru_cache
def schedules(num_decisions: int) -> st.SearchStrategy[Schedule]:
    """Generate schedules with many early deviations from the default, or a few anywhere.

    Shrinks toward the default schedule.

    Args:
        num_decisions: Largest number of decisions up to the last deviation.
    """
    choice = st.integers(0, _MAX_OPTION)
    place = st.integers(0, max(num_decisions - 1, 0))
    deviation = st.tuples(place, st.integers(1, _MAX_OPTION))
    return st.one_of(
        st.lists(choice, max_size=num_decisions).map(
            lambda drawn: Schedule(tuple(drawn))
        ),
        st.lists(deviation, min_size=1, max_size=_MAX_DEVIATIONS).map(_schedule),
    )


def _schedule(deviations: list[tuple[int, int]]) -> Schedule:
    choices = dict(deviations)
    return Schedule(tuple(choices.get(n, 0) for n in range(max(choices) + 1)))
