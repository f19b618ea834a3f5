"""d9d's gradient synchronizer as a subject, unmodified."""

from syncverify.scenario.contract import Capabilities
from syncverify.subjects.built_in import missing_package

SUBJECTS = {"d9d": "D9dSubject"}
PACKAGE = "d9d"

try:
    from d9d.internals.grad_sync import GradientSynchronizer
except ModuleNotFoundError as error:
    raise missing_package(PACKAGE, error) from error


class D9dSubject(GradientSynchronizer):  # type: ignore[misc]  # untyped, or missing
    """d9d's synchronizer with its contract.

    d9d sums. It takes its stream from `torch.cuda` by name, whose order `sim` judges. It
    promises to overlap: a hook in backward reduces each full bucket. The constructor takes no
    count: `set_required_accumulations()` says it after `bind()`, as d9d's trainer does.
    """

    capabilities = Capabilities(
        varying_accumulations=True, overlaps_backward=True, takes_cuda_streams=True
    )
