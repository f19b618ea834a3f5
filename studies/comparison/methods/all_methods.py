"""The methods, in the order of the table."""

from comparison.methods.allclose import ALLCLOSE
from comparison.methods.cuda_sanitizer import CUDA_SANITIZER
from comparison.methods.debug_mode import DEBUG_MODE
from comparison.methods.detail_debug import DETAIL_DEBUG
from comparison.methods.harness import HARNESS
from comparison.methods.local_tensor import LOCAL_TENSOR
from comparison.methods.loss_parity import LOSS_PARITY
from comparison.methods.threaded_group import THREADED_GROUP

METHODS = (
    ALLCLOSE,
    LOSS_PARITY,
    DETAIL_DEBUG,
    CUDA_SANITIZER,
    THREADED_GROUP,
    LOCAL_TENSOR,
    DEBUG_MODE,
    HARNESS,
)
