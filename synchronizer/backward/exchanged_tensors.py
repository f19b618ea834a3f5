"""Which tensor a parameter is now: torch can exchange it behind the Python object.

`torch.utils.swap_tensors(p, q)` leaves the Python object `p` where it is, with its hooks in
`p._post_accumulate_grad_hooks`. But autograd runs the hooks of the tensor, and those are with
`q` now. `Module.to()` exchanges each DTensor in this way, so its hooks never run again, and
hooks that are registered later do not either: torch finds the dict of the old ones, and adds to
it. Other parameters stay the same tensor, in new memory.

No public attribute tells any of this, so this module uses private ones.
"""

import torch


def address(parameter: torch.Tensor) -> int:
    """Return the address of the tensor in C++, which is another one after an exchange."""
    found: int = parameter._cdata  # noqa: SLF001
    return found


def reconnect_hooks(parameter: torch.Tensor) -> None:
    """Give the hooks of the Python object to the tensor that it is now; harmless without."""
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks = getattr(parameter, name)
        if hooks is not None:
            setattr(parameter, name, None)
            setattr(parameter, name, hooks)
