"""GPUs that a process hears of while it collects and runs tests of simulated ranks.

A module of tests asks for GPUs when it is imported, and a decorator of a test before its ranks
start. Lines of tests, and of torch's own helpers of tests, hear of virtual GPUs. All other
lines hear the truth: there is nothing to compute on. On the thread of a rank the machine
answers.
"""

import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn
from unittest.mock import patch

import torch
import torch.distributed as dist

from syncverify.trace.source_files import is_subject_line


@contextmanager
def told_gpus(number: int) -> Iterator[None]:
    """Let lines of tests hear of some GPUs within a block."""
    answers: list[tuple[Any, str, object]] = [
        (torch.cuda, "is_available", True),
        (torch.cuda, "device_count", number),
        (torch.cuda, "is_bf16_supported", True),
        (torch.cuda, "get_device_capability", (9, 0)),
        (torch.accelerator, "is_available", True),
        (torch.accelerator, "device_count", number),
        (torch.accelerator, "current_accelerator", torch.device("cuda")),
        (dist, "is_nccl_available", True),
        (dist.distributed_c10d, "is_nccl_available", True),
    ]
    with ExitStack() as stack:
        for owner, name, answer in answers:
            replaced = _told(getattr(owner, name), answer)
            stack.enter_context(patch.object(owner, name, replaced))
        # torch calls it before any use of a real device.
        stack.enter_context(patch.object(torch.cuda, "_lazy_init", _skip))
        yield


def _skip() -> NoReturn:
    raise unittest.SkipTest("not simulated: memory of a GPU in a test without ranks")


def _told(original: Callable[..., Any], answer: object) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        if is_subject_line(sys._getframe(1).f_code.co_filename):
            return answer
        return original(*args, **options)

    return function
