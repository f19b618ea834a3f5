"""What the gradients take, exactly: nothing here depends on the machine."""

from dataclasses import asdict, dataclass

from torch.multiprocessing.reductions import StorageWeakRef

from benchmarks.synchronizer.models import make_model
from benchmarks.synchronizer.sizes import ModelSize
from synchronizer import GradientSynchronizer


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one model.

    Attributes:
        gradient_bytes: What the gradients hold.
        padding_bytes: What `explain()` says that lies between them.
        buffer_bytes: Of the storages behind `.grad` while bound; the sum of both.
        alive_bytes: Of those that are alive after `unbind()`.
    """

    gradient_bytes: int
    padding_bytes: int
    buffer_bytes: int
    alive_bytes: int


def memory_of(size: ModelSize, bucket_mib: float) -> dict[str, int]:
    """Bind, look at the memory, and unbind."""
    parameters = list(make_model(size).parameters())
    synchronizer = GradientSynchronizer([parameters], bucket_mib, 1)
    buckets = synchronizer.explain().buckets
    synchronizer.bind()
    num_bytes = {}
    for parameter in parameters:
        assert parameter.grad is not None
        storage = parameter.grad.untyped_storage()
        num_bytes[StorageWeakRef(storage)] = storage.nbytes()
    del storage
    synchronizer.unbind()
    memory = Memory(
        sum(bucket.payload_bytes for bucket in buckets),
        sum(bucket.padding_bytes for bucket in buckets),
        buffer_bytes=sum(num_bytes.values()),
        alive_bytes=sum(n for ref, n in num_bytes.items() if not ref.expired()),
    )
    return asdict(memory)
