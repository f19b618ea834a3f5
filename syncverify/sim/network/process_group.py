"""torch's process group API over a simulated communicator.

Every collective of torch becomes a `CollectiveCall`, which `communicator.py` issues and matches.

Note [Modes that see collectives]
    torch's own process groups pass each collective through its dispatcher, as `c10d.allreduce_`
    and the like, so `CommDebugMode` counts it. A simulated group does that where modes of the
    program are in force:

    1. A group of torch, which has no backend, makes the operator of the call.
    2. A mode of the harness, above all modes of the program, puts the simulated group into its
       arguments.
    3. The modes of the program see the operator, and may drop it.
    4. Another mode of the harness, below them, issues the simulated collective.

    Not covered: `barrier`, for which torch makes a tensor on a device that is not there, and
    modes that trace a program, such as `FakeTensorMode`.
"""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

import functools
import inspect
import itertools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.holding import holding
from syncverify.sim.device.torch_internals import num_results, schema_arguments
from syncverify.sim.network.collectives import CollectiveCall, Tensors, reduction_of
from syncverify.sim.network.communicator import SimulatedCommunicator
from syncverify.sim.network.work import CoalescedWork
from syncverify.sim.turns.refusals import refusal, refuse, refusing_rest
from syncverify.trace import dispatch_modes
from syncverify.trace.stacks import is_called_by
from syncverify.trace.sync_points import is_ignored


def _dispatched(issue: Callable[..., dist.Work]) -> Any:
    """Return a method that modes of a program see; see Note [Modes that see collectives]."""
    name = issue.__name__  # of a method of `dist.ProcessGroup`, too

    @functools.wraps(issue)
    def method(group: Any, *given: Any, **named: Any) -> dist.Work:
        modes = dispatch_modes.modes_of_program()
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
        with dispatch_modes.modes_in_place(around):
            work: dist.Work = getattr(plain, name)(*given, **named)
        return work

    return method


class _Operators(dispatch_modes.HarnessMode):
    """Calls a function in the place of each operator, with its arguments."""

    def __init__(self, run: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch
        self._run = run

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self._run(func, args, kwargs or {})


_NUMBER = "the number of a group's next collective"
_REDUCE = frozenset({"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_single"})
_HAVE_ROOT = frozenset({"broadcast", "gather", "reduce", "scatter"})
_TAKES_ONE_BY_ONE = types.SimpleNamespace(supports_coalescing=False)


def _noting_async(issue: Any) -> Any:
    """Return a method that notes from torch's options whether the caller gets a handle.

    Since torch 2.8, NCCL runs a collective without a handle on the caller's own stream.
    """
    known = inspect.signature(issue).parameters

    @functools.wraps(issue)
    def noting(group: "SimulatedProcessGroup", *given: Any, **named: Any) -> dist.Work:
        if named.keys() - known.keys():
            refuse(f"ProcessGroup.{issue.__name__} with {', '.join(sorted(named))}")
        opts = named.get("opts", given[-1] if given else None)
        # True again afterwards, so that messages need not say so.
        with holding(group, "_is_async", getattr(opts, "asyncOp", True)):
            work: dist.Work = issue(group, *given, **named)
        return work

    return noting


# Operations whose name is not that of torch's method.
_OPERATIONS = {
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all",
}


def _of_tensors(name: str, *tensors: str) -> Any:
    """Return a method of torch's groups, by its name and those of its arguments before `opts`.

    Outputs come before inputs; a single argument is both.
    """
    short = name.removesuffix("_coalesced")
    operation, is_coalesced = _OPERATIONS.get(short, short), short != name
    place = functools.partial(
        inspect.Parameter, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD
    )
    arguments = [*map(place, ("self", *tensors)), place("opts", default=None)]
    signature = inspect.Signature(arguments)

    def issue(*given: Any, **named: Any) -> dist.Work:
        bound = signature.bind(*given, **named)
        bound.apply_defaults()
        group, *listed, opts = bound.args
        tensors = _listed(listed[-1]), _listed(listed[0])
        reduce_op, factor, root = "", None, None
        if operation in _REDUCE:
            reduce_op, factor = reduction_of(opts)
        if operation in _HAVE_ROOT:  # torch's options, or the number itself
            root = 0 if opts is None else int(getattr(opts, "rootRank", opts))
        call = CollectiveCall(
            operation, reduce_op, *tensors, root, factor, is_coalesced=is_coalesced
        )
        work: dist.Work = group._issue(call)  # noqa: SLF001  # of the class below
        return work

    issue.__name__, issue.__dict__["__signature__"] = name, signature
    return _dispatched(_noting_async(issue))


# Answers of torch's base class that fit each group: names and numbers, and what no group does.
_INHERITED = frozenset(
    {
        *("BackendType", "CUSTOM", "GLOO", "MPI", "NCCL", "UCC", "UNDEFINED", "XCCL"),
        *("_pybind11_conduit_v1_", "boxed", "unbox", "_id", "_backend_id"),
        *("_get_backend_name", "_has_hooks", "_register_backend"),
        *("_set_default_backend", "_set_group_desc", "abort", "bound_device_id"),
        *("get_group_store", "group_desc", "name", "rank", "set_timeout"),
        *("_add_ephemeral_timeout", "_enable_collectives_timing"),
        *("supports_abort_hooks", "supports_completion_hooks"),
        *("supports_reconfigure", "supports_window"),
    }
)


@refusing_rest(dist.ProcessGroup, _INHERITED)
class SimulatedProcessGroup(SimulatedCommunicator):
    """One rank's handle of a simulated process group."""

    # Python and C++ callers rely on torch's names and argument orders, so both are kept below.
    # Functional collectives gather and reduce several tensors by the coalesced forms alone.
    _of_lists = "output_tensors", "input_tensors"
    allreduce: Any = _of_tensors("allreduce", "tensors")
    allreduce_coalesced: Any = _of_tensors("allreduce_coalesced", "tensors")
    reduce: Any = _of_tensors("reduce", "tensors")
    broadcast: Any = _of_tensors("broadcast", "tensors")
    allgather: Any = _of_tensors("allgather", *_of_lists)
    allgather_coalesced: Any = _of_tensors(
        "allgather_coalesced", "output_lists", "input_list"
    )
    all_gather_single: Any = _of_tensors("all_gather_single", "output", "input")
    all_gather_single_coalesced: Any = _of_tensors(
        "all_gather_single_coalesced", "outputs", "inputs"
    )
    gather: Any = _of_tensors("gather", *_of_lists)
    scatter: Any = _of_tensors("scatter", *_of_lists)
    reduce_scatter: Any = _of_tensors("reduce_scatter", *_of_lists)
    reduce_scatter_single: Any = _of_tensors("reduce_scatter_single", "output", "input")
    reduce_scatter_single_coalesced: Any = _of_tensors(
        "reduce_scatter_single_coalesced", "outputs", "inputs"
    )
    alltoall: Any = _of_tensors("alltoall", *_of_lists)
    # Names before torch 2.13.
    _allgather_base: Any = all_gather_single
    allgather_into_tensor_coalesced: Any = all_gather_single_coalesced
    _reduce_scatter_base: Any = reduce_scatter_single
    reduce_scatter_tensor_coalesced: Any = reduce_scatter_single_coalesced

    # Not dispatched: torch makes a tensor for a barrier, on a device that is not there.
    @override
    @_noting_async
    def barrier(self, opts: Any = None) -> dist.Work:
        if is_ignored("barrier"):
            return CoalescedWork(())
        return self._issue(CollectiveCall("barrier", "", [], []))

    @override
    @_dispatched
    @_noting_async
    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Any,
        input_split_sizes: Any,
        opts: Any = None,
    ) -> dist.Work:
        whole = CollectiveCall("all_to_all_single", "", [input], [output])
        # The parts of a tensor may be contiguous where the tensor is not.
        whole = self._as_taken(whole)
        inputs = self._split(whole.inputs[0], input_split_sizes)
        outputs = self._split(whole.outputs[0], output_split_sizes)
        return self._issue(CollectiveCall("all_to_all_single", "", inputs, outputs))

    alltoall_base = all_to_all_single  # its name before torch 2.13

    @override
    @_dispatched
    def send(self, tensors: Any, dst_rank: int, tag: int) -> dist.Work:
        call = CollectiveCall("send", "", _listed(tensors), [])
        return self._issue(call, peers=(self.rank(), dst_rank), tag=tag)

    @override
    @_dispatched
    def recv(self, tensors: Any, src_rank: int, tag: int) -> dist.Work:
        call = CollectiveCall("recv", "", [], _listed(tensors))
        return self._issue(call, peers=(src_rank, self.rank()), tag=tag)

    @override
    def _get_backend(self, device: Any) -> Any:
        # Since torch 2.14 a batch of messages asks whether the backend takes it as one.
        if not is_called_by("batch_isend_irecv"):
            refuse("a backend of a group")
        return _TAKES_ONE_BY_ONE

    # Left to torch, these would raise an error that reads like the subject's own. NCCL
    # knows neither of the first two.
    recv_anysource: Any = refusal("recv from any rank")
    monitored_barrier: Any = refusal("monitored_barrier")
    _get_sequence_number_for_group: Any = refusal(_NUMBER)
    _set_sequence_number_for_group: Any = refusal(_NUMBER)
    _register_on_completion_hook: Any = refusal("hooks of a group's collectives")
    _wait_for_pending_works: Any = refusal("a wait for all collectives of a group")
    merge_remote_group: Any = refusal("groups that are merged")
    split_group: Any = refusal("groups that are split")

    def _split(self, tensor: Any, sizes: list[int]) -> Tensors:
        """Return the parts of a tensor, one per rank; equal ones by default.

        Raises:
            RuntimeError: As `checkSplitSizes` in torch/csrc/distributed/c10d/Utils.hpp raises it.
        """
        num_ranks, length = self.size(), len(tensor)
        if not sizes and length % num_ranks:
            raise RuntimeError(
                "Tensor's dim 0 does not divide equally across group size"
            )
        if sizes and len(sizes) != num_ranks:
            raise RuntimeError("Number of tensor splits not equal to group size")
        if sizes and sum(sizes) != length:
            raise RuntimeError("Split sizes doesn't match total dim 0 size")
        return list(tensor.split(sizes or [length // num_ranks] * num_ranks))


def _listed(tensors: Any) -> Tensors:
    """Return one tensor, a list of them or a list of lists as one list."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    lists = (
        each if isinstance(each, (list, tuple)) else [each] for each in tensors or ()
    )
    return [*itertools.chain(*lists)]
