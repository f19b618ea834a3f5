"""Functions that run inside a hook that comes before the accumulation into `.grad`.

Hooks of `Tensor.register_hook`, of `register_multi_grad_hook` and of a node's `register_prehook`
get the gradient that autograd has computed, before it is accumulated into `.grad`. A synchronizer
that reads or sends `.grad` there misses the micro-batch that is under way.

Note [Prehooks of nodes]
    torch lists the hooks of a tensor, and not those of a node. But the engine calls each kind
    with arguments of its own: a prehook with one tuple of gradients, a hook of a node with two
    tuples, a hook of a parameter with a tensor. So the arguments of the first function that the
    engine called tell the kind.
"""

import functools
import inspect
import itertools
import sys
import traceback
from collections.abc import Iterable, Mapping
from types import CodeType, FrameType
from typing import Any

import torch

from syncverify.trace.source_files import is_engine, is_subject_line
from syncverify.trace.stacks import frames_from


def is_in_tensor_hook(parameters: Iterable[torch.Tensor]) -> bool:
    """Tell whether a tensor hook of some parameter called the current line."""
    return _is_early([*frames_from(sys._getframe(1))], parameters)


def raised_in_tensor_hook(
    parameters: Iterable[torch.Tensor], error: BaseException
) -> bool:
    """Tell whether an error was raised below a tensor hook of some parameter."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return _is_early(frames[::-1], parameters)


def _is_early(frames: list[FrameType], parameters: Iterable[torch.Tensor]) -> bool:
    """Tell whether frames, the innermost first, lie below a hook before accumulation."""
    hooks = _hook_codes(parameters)
    return any(frame.f_code in hooks for frame in frames) or any(
        is_engine(caller.f_code) and _is_prehook(frame)
        for frame, caller in itertools.pairwise(frames)
    )


def hooked_early(parameters: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Name the parameters with hooks of the subject that all run before accumulation."""
    return frozenset(
        name
        for name, parameter in parameters.items()
        if not parameter._post_accumulate_grad_hooks  # noqa: SLF001
        and any(is_subject_line(code.co_filename) for code in _hook_codes([parameter]))
    )


def _is_prehook(frame: FrameType) -> bool:
    """Tell whether a function takes one tuple of gradients; see Note [Prehooks of nodes]."""
    names, rest, _, values = inspect.getargvalues(frame)
    given = [values.get(name) for name in names]
    given += values.get(rest, ()) if rest else ()
    tuples = [each for each in given if isinstance(each, tuple)]
    return len(tuples) == 1 and any(isinstance(e, torch.Tensor) for e in tuples[0])


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
