"""One program plays all ranks on LocalTensors, or says why it cannot."""

from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from studies.comparison.cases import Case
from studies.comparison.local_tensors import play_on_local_tensors
from studies.comparison.methods.local_tensor import LOCAL_TENSOR
from studies.comparison.training import trained
from studies.comparison.verdicts import Verdict
from syncverify.backends.packed_outcomes import unpack_result
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_group_is_left() -> Iterator[None]:
    yield
    assert not dist.is_initialized()


def verdict(case: Case, subject: Subject) -> Verdict:
    scenario = trained(case.reproducer.scenario)
    answer = play_on_local_tensors(scenario, subject)
    results = tuple(map(unpack_result, answer.results))
    run = Run("local tensors", results, answer.fault, remarks=answer.remarks)
    right = reference(scenario, subject.capabilities)
    return LOCAL_TENSOR.judge(Judgement(scenario, run, right))


@pytest.mark.parametrize(
    "name", ["avg-divides-by-numel", "reduce-scatter-storage-order"]
)
def test_a_wrong_gradient_of_any_rank_is_seen(
    case: Callable[[str], Case], name: str
) -> None:
    found = case(name)
    assert verdict(found, found.defect).alarmed
    assert verdict(found, found.twin) == Verdict(alarmed=False)


def test_ranks_that_do_different_things_cannot_be_played(
    case: Callable[[str], Case],
) -> None:
    scenario = Scenario(
        MeshSpec((2,), ("dp",)),
        (ParameterSpec("p", (2,), ("R",), used="not_on_odd_ranks"),),
        (1,),
        64,
    )
    answer = play_on_local_tensors(scenario, case("avg-divides-by-numel").twin)
    assert answer.fault is None
    assert answer.remarks == (
        "cannot be played: OneProgramError: ranks use different parameters",
    )


def test_an_operation_that_is_missing_there_is_no_finding(
    case: Callable[[str], Case],
) -> None:
    found = case("messages-one-by-one")
    judged = verdict(found, found.defect)
    assert judged.words.startswith("cannot be played: ")
    assert not judged.alarmed
