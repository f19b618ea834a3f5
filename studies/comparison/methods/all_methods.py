"""The methods, in the order of the table."""

from studies.comparison.methods.allclose import ALLCLOSE
from studies.comparison.methods.cuda_sanitizer import CUDA_SANITIZER
from studies.comparison.methods.debug_mode import DEBUG_MODE
from studies.comparison.methods.detail_debug import DETAIL_DEBUG
from studies.comparison.methods.harness import HARNESS
from studies.comparison.methods.local_tensor import LOCAL_TENSOR
from studies.comparison.methods.loss_parity import LOSS_PARITY
from studies.comparison.methods.threaded_group import THREADED_GROUP

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
