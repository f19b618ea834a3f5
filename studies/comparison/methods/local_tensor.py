"""Values on torch's LocalTensor, where one program plays all ranks."""

from studies.comparison.methods.method import Method
from studies.comparison.methods.threaded_group import values_are_right
from studies.comparison.verdicts import Verdict, one_line
from syncverify.judge.properties.judgement import Judgement


def values_of_one_program(judgement: Judgement) -> Verdict:
    """Compare gradients with the reference, where LocalTensor could play the scenario.

    Args:
        judgement: A run on LocalTensors.

    Returns:
        An alarm at the first wrong gradient.
    """
    for remark in judgement.run.remarks:
        return Verdict(alarmed=False, words=one_line(remark))
    return values_are_right(judgement)


LOCAL_TENSOR = Method(
    "local_tensor",
    "LocalTensor, values",
    "local tensors",
    values_of_one_program,
)
