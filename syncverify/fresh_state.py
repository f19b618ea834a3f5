"""Play and judge as in a process that has just imported torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def fresh_state() -> Iterator[None]:
    """Turn off what the caller has turned on in torch, for the length of a block.

    A test suite may run on a default device, without gradients, or in anomaly mode. That is
    not the subject's doing, and says nothing about it. Left as they are: autocast, the
    default dtype, deterministic algorithms and numbers of threads, on which nothing depends.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield
