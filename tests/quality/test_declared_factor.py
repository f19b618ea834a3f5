"""A declared divide factor that is dropped has a hint, and one without a meaning is refused."""

import pytest

from syncverify.errors import UsageError
from syncverify.report.hints import hint
from syncverify.scenario.contract import Capabilities
from tests.programs import violations
from tests.quality.planted.factors import ONE_RANK, DropsTheFactorOfOneRank


def test_the_hint_says_where_the_factor_holds() -> None:
    first, *_ = violations(DropsTheFactorOfOneRank, ONE_RANK[0])
    assert hint(first.cause, first.evidence) == (
        "divide each gradient that has a replicated axis once by the declared factor, also on "
        "axes of one rank; others are not divided"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"divide_factor": 3}, "expected `divide_factor` of a contract as 0 or 2 or 4 or 8 or 16, got 3"),
        ({"divide_factor": 2, "reduction": "mean"}, "expected `reduction` of a contract as 'sum' beside a divide_factor, got 'mean'"),
    ],
)  # fmt: skip
def test_a_factor_that_rounds_or_has_two_meanings_is_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Capabilities(**fields)
    assert str(caught.value) == message
