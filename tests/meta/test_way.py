"""The way of a scenario from `verify()` to the report is short; see `way.py`."""

import pytest

from tests.meta.way import Steps, way_of

VALUES = "examples.reduces_too_often:ReducesTooOften"
RACE = "syncverify.bugbank.ordering.streams:NeverJoins"
MOST_FUNCTIONS, MOST_FILES = 280, 74


def check_is_short(steps: Steps) -> None:
    files = {file for file, _ in steps}
    if len(steps) > MOST_FUNCTIONS or len(files) > MOST_FILES:
        listed = "\n".join(
            sorted(f"  {file} {name}" for (file, _), name in steps.items())
        )
        raise AssertionError(
            f"expected at most {MOST_FUNCTIONS} functions in {MOST_FILES} files on the way of "
            f"a scenario, got {len(steps)} in {len(files)}:\n{listed}\n"
            "hint: merge a step that only passes on, hand a function the part that it reads "
            "and not the whole, or bring a module with one user home"
        )


@pytest.mark.long
@pytest.mark.parametrize("subject", [VALUES, RACE])
def test_the_way_of_a_violation_is_short(subject: str) -> None:
    """One subject has wrong values, the other one a race."""
    steps = way_of(subject)
    names = set(steps.values())
    assert {"run_search", "Judge.judge_schedule", "violation_text"} <= names
    check_is_short(steps)


def test_a_long_way_is_an_error_that_lists_it() -> None:
    long: Steps = {("a.py", line): f"step_{line}" for line in range(MOST_FUNCTIONS + 1)}
    with pytest.raises(
        AssertionError, match=rf"got {MOST_FUNCTIONS + 1} in 1:\n  a\.py step_0\n"
    ):
        check_is_short(long)
    check_is_short(dict([*long.items()][:MOST_FUNCTIONS]))
