"""The flags of `torch.backends`, which torch's own tests freeze.

No other module of the harness touches the private context manager by which torch changes frozen
flags.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch


def changeable_flags() -> AbstractContextManager[Any]:
    """Let flags be set within a block, though `disable_global_flags` has frozen them."""
    unfrozen: Any = getattr(torch.backends, "__allow_nonbracketed_mutation")
    return unfrozen()  # type: ignore[no-any-return]
