"""Functions that run inside a tensor hook of a parameter.

`Tensor.register_hook` and `register_multi_grad_hook` call a function with the gradient that
autograd has computed, before it is accumulated into `.grad`. A synchronizer that reads or
sends `.grad` there misses the micro-batch that is under way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch

from syncverify.trace.source_lines import is_subject_line


def is_in_tensor_hook(parameters: Iterable[torch.Tensor]) -> bool:
    """Tell whether a tensor hook of some parameter called the current line."""
    hooks = _hook_codes(parameters)
    return bool(hooks) and any(
        code in hooks for code in _codes_of_stack(sys._getframe(1))
    )


def raised_in_tensor_hook(
    parameters: Iterable[torch.Tensor], error: BaseException
) -> bool:
    """Tell whether an error was raised below a tensor hook of some parameter."""
    hooks = _hook_codes(parameters)
    return bool(hooks) and any(
        code in hooks for code in _codes_of_traceback(error.__traceback__)
    )


def hooked_early(parameters: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Name the parameters with hooks of the subject that all run before accumulation."""
    return frozenset(
        name
        for name, parameter in parameters.items()
        if not parameter._post_accumulate_grad_hooks  # noqa: SLF001
        and any(is_subject_line(code.co_filename) for code in _hook_codes([parameter]))
    )


def _hook_codes(parameters: Iterable[torch.Tensor]) -> set[CodeType]:
    # torch has no public way to list hooks (torch/_tensor.py, register_hook).
    hooks = (
        hook
        for parameter in parameters
        for hook in (parameter._backward_hooks or {}).values()  # noqa: SLF001
    )
    return {code for hook in hooks if (code := code_of(hook)) is not None}


def code_of(hook: Any) -> CodeType | None:
    """Return the code that a callable runs; None for one that is written in C."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = getattr(hook, "__func__", hook)
    if not hasattr(function, "__code__"):
        function = vars(type(hook)).get("__call__")
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _codes_of_stack(frame: FrameType | None) -> Iterator[CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _codes_of_traceback(traceback: TracebackType | None) -> Iterator[CodeType]:
    while traceback is not None:
        yield traceback.tb_frame.f_code
        traceback = traceback.tb_next
