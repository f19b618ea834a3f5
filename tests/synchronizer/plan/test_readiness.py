"""How an observed order and a planned one become one."""

import pytest

from synchronizer.plan.readiness import merge_order


@pytest.mark.parametrize(
    ("observed", "merged"),
    [
        ("abcd", "abcd"),
        ("dcba", "dcba"),
        ("", "abcd"),
        ("da", "dabc"),
        ("dc", "abdc"),
        ("cb", "acdb"),
    ],
)
def test_what_was_not_observed_stays_behind_what_it_followed(observed, merged) -> None:
    items = [ord(each) for each in "abcd"]
    assert merge_order(items, list(observed.encode())) == list(merged.encode())
