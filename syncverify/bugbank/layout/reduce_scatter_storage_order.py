"""Gradients are copied row by row, and handed back with the parameter's strides.

Reported in pytorch/pytorch#130251.
"""

from typing_extensions import override

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.placements import like, local
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#130251",
    trigger="a transposed parameter",
    violates="gradient_equals_reference",
    cause="partly_wrong",
)
class HandsBackInTheOrderOfStorage(MainGrads):
    """Gradients are copied row by row, and handed back with the parameter's strides."""

    features = frozenset({"memory_format=transposed"})

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            for parameter, slot in bucket.slots.items():
                part = local(parameter)
                strided = slot.as_strided(part.shape, part.stride())
                parameter.grad = like(parameter, strided)
