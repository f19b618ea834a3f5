"""How an observed order and a planned one become one."""

import pytest

from syncverify.synchronizer.plan.readiness import with_unseen_last


@pytest.mark.parametrize(
    ("observed", "merged"),
    [
        ("abcd", "abcd"),
        ("dcba", "dcba"),
        ("", "abcd"),
        ("da", "dabc"),
        ("dc", "dcab"),
        ("b", "bacd"),
    ],
)
def test_a_parameter_that_is_never_used_keeps_no_bucket_of_others(
    observed, merged
) -> None:
    items = [ord(each) for each in "abcd"]
    found = with_unseen_last(items, list(observed.encode()))
    assert found == list(merged.encode())
