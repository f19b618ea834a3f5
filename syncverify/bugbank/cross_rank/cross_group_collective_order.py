"""Half of the ranks start with the other axis, to keep all links busy.

Reported in meta-pytorch/torchrec#4149.
"""

from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "meta-pytorch/torchrec#4149",
    trigger="a mesh of (2, 2), a parameter replicated over both axes",
    violates="every_wait_completes",
    cause="deadlock",
    silent=False,
)
class TakesAxesInTurn(MainGrads):
    """Half of the ranks start with the other axis, to keep all links busy."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        (parameter, *_) = bucket.slots
        if isinstance(parameter, DTensor):
            row_and_column = parameter.device_mesh.get_coordinate()
            if sum(row_and_column or ()) % 2:
                bucket.groups = bucket.groups[::-1]
        super().reduce(bucket)
