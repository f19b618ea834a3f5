"""`TORCH_DISTRIBUTED_DEBUG=DETAIL` names collectives that do not match."""

from collections.abc import Callable

import pytest

from studies.comparison.cases import Case
from studies.comparison.methods.detail_debug import DETAIL_DEBUG
from studies.comparison.outcomes import verdicts
from studies.comparison.rigs import Rigs

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_ranks_that_disagree_are_distinguished(
    case: Callable[[str], Case], rigs: Rigs
) -> None:
    found = case("size-mismatch-does-not-hang")
    runs = (
        rigs.play(DETAIL_DEBUG.rig, found, each) for each in (found.defect, found.twin)
    )
    defect, twin = verdicts(DETAIL_DEBUG, *runs)
    assert "Detected mismatch between collectives" in defect.words
    assert not twin.alarmed
