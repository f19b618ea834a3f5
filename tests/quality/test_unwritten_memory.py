"""A synchronizer that reduces memory that it never filled is found, by the lines."""

from syncverify.judge.properties.unwritten import memory_is_written_before_it_is_read
from tests.programs import identities
from tests.quality.planted.unwritten import ReducesPadding, ReducesUnfilledStaging
from tests.quality.test_remains import SCENARIO


def test_a_bucket_that_was_never_filled_is_found() -> None:
    name = memory_is_written_before_it_is_read.__name__
    assert (name, "read_unwritten") in identities(ReducesUnfilledStaging, SCENARIO)


def test_padding_that_was_never_written_is_right() -> None:
    assert identities(ReducesPadding, SCENARIO) == set()
