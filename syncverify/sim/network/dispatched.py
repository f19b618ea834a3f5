"""Collectives as operators of torch's dispatcher, for the dispatch modes of a program.

torch's own process groups pass each collective through its dispatcher, as `c10d.allreduce_` and
the like, so `CommDebugMode` counts it. A simulated group does that where modes of the program are
in force:

1. A group of torch, which has no backend, makes the operator of the call.
2. `_GroupNamer`, above all modes of the program, puts the simulated group into its arguments.
3. The modes of the program see the operator, and may drop it.
4. `_CollectiveIssuer`, below them, issues the simulated collective.

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
    def method(group: dist.ProcessGroup, *given: Any, **named: Any) -> dist.Work:
        modes = modes_of_program()
        if not modes:
            return issue(group, *given, **named)
        issuing = _CollectiveIssuer(functools.partial(issue, group, *given, **named))
        plain: Any = dist.ProcessGroup(group.rank(), group.size())  # type: ignore[call-arg]
        with modes_in_place([issuing, *modes, _GroupNamer(group)]):
            work: dist.Work = getattr(plain, name)(*given, **named)
        return work

    return method


class _GroupNamer(HarnessMode):
    """Puts a simulated group into the arguments of an operator, in the place of the plain one."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._group: Any = group

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Pass an operator on with the group."""
        names = [each.name for each in schema_arguments(func)]
        position = names.index("process_group")
        return func(*args[:position], self._group.boxed(), *args[position + 1 :])


class _CollectiveIssuer(HarnessMode):
    """Issues a collective in the place of the kernel of its operator."""

    def __init__(self, issue: Callable[[], dist.Work]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._issue = issue
        # Kept, since torch gives back the same object only as long as it lives.
        self._work: Any = None

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Issue the collective, and run any other operator."""
        if func.namespace != "c10d":  # a mode of the program computes
            return func(*args, **(kwargs or {}))
        self._work = self._issue()
        boxed = self._work.boxed()
        return (args[0], boxed) if num_results(func) > 1 else boxed
