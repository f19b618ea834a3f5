"""The exact memory of the gradients, which does not depend on the machine."""

from torch.multiprocessing.reductions import StorageWeakRef

from studies.benchmarks.synchronizer.models import make_model
from studies.benchmarks.synchronizer.sizes import ModelSize
from syncverify.synchronizer import GradientSynchronizer


def memory_of(size: ModelSize, bucket_mib: float) -> dict[str, int]:
    """Bind a synchronizer, measure the memory, and unbind it.

    Returns:
        The bytes of all gradients, of the padding between them as `explain()` reports it,
        of the storages behind `.grad` while bound, which is the sum of both, and of those
        storages that are alive after `unbind()`.
    """
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
    return {
        "gradient_bytes": sum(bucket.payload_bytes for bucket in buckets),
        "padding_bytes": sum(bucket.padding_bytes for bucket in buckets),
        "buffer_bytes": sum(num_bytes.values()),
        "alive_bytes": sum(n for ref, n in num_bytes.items() if not ref.expired()),
    }
