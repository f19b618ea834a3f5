"""A contract may let a subject refuse values of plain steps, and the report counts that."""

import pytest
import torch
import torch.distributed as dist

import syncverify
from syncverify.plain_text import counted
from syncverify.report.report import Report
from syncverify.report.text import verdict
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hardly_shrunk")]
PAIRS = Capabilities(refused=frozenset({"ranks=2"}))
REFUSED = "refused by a clear error, as the contract allows: "


class RefusesPairs(PlainGrads):
    """A world of two ranks is too large for the model."""

    capabilities = PAIRS

    def bind(self) -> None:
        if dist.get_world_size() == 2:
            raise ValueError("the world is too large for the model: use one rank")


class StumblesOverPairs(PlainGrads):
    """A world of two ranks ends in an error that explains nothing."""

    capabilities = PAIRS

    def bind(self) -> None:
        if dist.get_world_size() == 2:
            raise KeyError(2)


class RefusesTriples(RefusesPairs):
    """The contract allows no error for three ranks."""

    def bind(self) -> None:
        if dist.get_world_size() == 3:
            raise ValueError("three ranks")


class LeavesPairsLocal(PlainGrads):
    """To refuse is allowed; to be wrong is not."""

    capabilities = PAIRS

    def reduce(self, gradient: torch.Tensor) -> None:
        if dist.get_world_size() != 2:
            super().reduce(gradient)


def verified(subject: type[PlainGrads]) -> Report:
    return syncverify.verify(subject, examples=12, seed=0, ranks=3, stop_at_first=True)


@pytest.mark.long
def test_refused_scenarios_are_counted() -> None:
    report = verified(RefusesPairs)
    assert 0 < report.num_refused < report.examples
    assert f"{REFUSED}{counted(report.num_refused, 'scenario')}" in report.explored


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (StumblesOverPairs, ("every_rank_finishes", "unclear_error")),
        (RefusesTriples, ("every_rank_finishes", "raised_ValueError")),
        (LeavesPairsLocal, ("gradient_equals_reference", "not_reduced")),
    ],
)
def test_what_is_not_a_clear_error_of_a_refused_value_is_found(
    subject: type[PlainGrads], expected: tuple[str, str]
) -> None:
    with pytest.raises(syncverify.PropertyViolation) as raised:
        verified(subject)
    assert raised.value.report.violations[0].violation.identity == expected


def test_a_subject_that_refuses_everything_is_no_pass() -> None:
    pairs_alone = Capabilities(
        refused=frozenset({"ranks=2"}), outside=frozenset({"ranks=1"})
    )
    with pytest.raises(
        syncverify.CoverageGap, match="refused every scenario"
    ) as raised:
        syncverify.verify(RefusesPairs, contract=pairs_alone, examples=5, ranks=2)
    assert verdict(raised.value.report).startswith("NOTHING VERIFIED")
