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
    "torch's `torch.distributed._local_tensor` plays all ranks in one program: a tensor holds "
    "the part of each rank, and a collective computes on these parts. After each `wait()` of "
    "the 10 steps, gradients are compared with our reference, exactly. Without the reference "
    "this method would have nothing to compare. By construction the method cannot see ranks "
    "that do different things, streams, lifetimes, hooks left behind or needless reductions. "
    "It cannot see a forgotten `wait()` either: a collective is complete when its call "
    "returns. Messages, `reduce` and addresses of tensors are not implemented there; a run "
    "that ends for such a reason counts as missed.",
)
