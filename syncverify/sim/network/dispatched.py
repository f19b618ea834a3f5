"""Collectives as operators of torch's dispatcher, for the dispatch modes of a program.

torch's own process groups pass each collective through its dispatcher, as `c10d.allreduce_` and
the like, so `CommDebugMode` counts it. A simulated group does that where modes of the program are
in force:

1. A group of torch, which has no backend, makes the operator of the call.
2. A mode of the harness, above all modes of the program, puts the simulated group into its arguments.
3. The modes of the program see the operator, and may drop it.
4. Another mode of the harness, below them, issues the simulated collective.

Not covered: `barrier`, for which torch makes a tensor on a device that is not there, and modes
that trace a program, such as `FakeTensorMode`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.device.torch_internals import num_results, schema_arguments
from syncverify.trace.dispatch_modes import (
    HarnessMode,
    modes_in_place,
    modes_of_program,
)

Issue = Callable[..., dist.Work]


def dispatched(issue: Issue) -> Issue:
    """Return a method of a group that the dispatch modes of a program see as torch's operator.

    A method of `dist.ProcessGroup` has its name.
    """
    name = issue.__name__

    @functools.wraps(issue)
    def method(group: Any, *given: Any, **named: Any) -> dist.Work:
        modes = modes_of_program()
        if not modes:
            return issue(group, *given, **named)
        # Kept, since torch gives back the same object only as long as it lives.
        works = list[Any]()

        def name_group(func: Any, args: Any, _: Any) -> Any:
            names = [each.name for each in schema_arguments(func)]
            position = names.index("process_group")
            return func(*args[:position], group.boxed(), *args[position + 1 :])

        def issue_call(func: Any, args: Any, kwargs: Any) -> Any:
            if func.namespace != "c10d":  # a mode of the program computes
                return func(*args, **kwargs)
            works.append(issue(group, *given, **named))
            boxed = works[-1].boxed()
            return (args[0], boxed) if num_results(func) > 1 else boxed

        plain: Any = dist.ProcessGroup(group.rank(), group.size())  # type: ignore[call-arg]
        around = [_Operators(issue_call), *modes, _Operators(name_group)]
        with modes_in_place(around):
            work: dist.Work = getattr(plain, name)(*given, **named)
        return work

    return method


class _Operators(HarnessMode):
    """Calls a function in the place of each operator, with its arguments."""

    def __init__(self, run: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._run = run

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self._run(func, args, kwargs or {})
