"""Reported in meta-pytorch/torchrec#4149."""

from __future__ import annotations

from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import Entry


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


ENTRY = Entry(
    subject=TakesAxesInTurn,
    twin=MainGrads,
    source="meta-pytorch/torchrec#4149",
    trigger="a mesh of (2, 2), a parameter replicated over both axes",
    silent=False,
    property="every_wait_completes",
    cause="deadlock",
)
