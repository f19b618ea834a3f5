"""The mechanisms of torch that the simulated machine stands on, each tried before a search.

Note [No verdict on an unknown torch]
    The machine relies on private parts of torch; the modules that touch them say which. A
    release that changes one would make a right program fail, and the program would be
    accused. So each mechanism plays a program whose outcome is known, once in a process, and
    nothing is judged where one fails. Tests state each fact more exactly.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.plain_text import in_one_line, message_of
from syncverify.sim.device.torch_internals import (
    default_device,
    next_sequence_number,
    running_node,
    sequence_number_of,
    without_new_versions,
)
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.turns.scheduler import RankThread
from syncverify.trace.records import DEFAULT_STREAM, Access
from syncverify.trace.tensor_hooks import hooked_early

_RANKS: Final = 2
# The oldest torch that the tests run on. On 2.11 the gradients of some DTensors differ.
_OLDEST: Final = "2.13"


class Mechanism(NamedTuple):
    """A behaviour of torch that the machine relies on, with its name in words."""

    name: str
    # Plays a program; raises, or returns whether its outcome is the known one.
    play: Callable[[], bool]


def require_known_torch(mechanisms: tuple[Mechanism, ...] | None = None) -> None:
    """Try each mechanism, those of the machine by default; see Note [No verdict on an unknown torch].

    Raises:
        EnvironmentNotSupportedError: One does not work on this torch.
    """
    tried = MECHANISMS if mechanisms is None else mechanisms
    # In a process with a group of its own the machine refuses to play, and says why.
    if not dist.is_initialized() and (fault := first_fault(tried)):
        raise EnvironmentNotSupportedError(
            f"torch {torch.__version__} is not known to work: {fault}. Nothing was judged. "
            "Use a release of torch that syncverify was tested with"
        )


def fault_since_the_start() -> str | None:
    """Return the first mechanism that fails by now, and how; None if all work."""
    return None if dist.is_initialized() else first_fault.__wrapped__(MECHANISMS)


def require_tested_torch() -> None:
    """Refuse a release that is older than those on which the tests run.

    Raises:
        EnvironmentNotSupportedError: This torch is older.
    """
    if torch.__version__ < _OLDEST:
        raise EnvironmentNotSupportedError(
            f"torch {torch.__version__} is not known to work on simulated ranks: they need "
            f"{_OLDEST} or newer. Nothing was judged"
        )


@functools.cache
def first_fault(mechanisms: tuple[Mechanism, ...]) -> str | None:
    """Return the first mechanism that fails, and how; None if all work."""
    # A caller may have a default device, no gradients, and warnings that are errors.
    with (
        warnings.catch_warnings(),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
        torch.device("cpu"),
    ):
        warnings.simplefilter("ignore")
        faults = ((each.name, _fault_of(each)) for each in mechanisms)
        return next((f"{name} {fault}" for name, fault in faults if fault), None)


def _fault_of(mechanism: Mechanism) -> str | None:
    try:
        return None if mechanism.play() else "has another outcome"
    except Exception as error:  # noqa: BLE001  # whatever torch raises
        return f"raises {type(error).__name__}: {in_one_line(message_of(error))}"


def _on_ranks(program: Callable[[int], bool]) -> bool:
    """Play a program on two simulated ranks, and tell whether it held on each."""
    held = dict[int, bool]()

    def noted(rank: int) -> None:
        held[rank] = program(rank)

    threads, stall = SimulatedMachine(_RANKS).run(noted)
    _raise_of(threads)
    return stall is None and held == dict.fromkeys(range(_RANKS), True)


def _raise_of(threads: Sequence[RankThread]) -> None:
    """Raise the error of the rank that raised; the machine has ended the others."""
    for each in threads:
        if isinstance(each.error, Exception):
            raise each.error


def _collectives(rank: int) -> bool:
    tensor = torch.full((2,), rank + 1.0)
    parts = [torch.empty(2) for _ in range(_RANKS)]
    dist.all_reduce(tensor, async_op=True).wait()
    dist.all_gather(parts, tensor)
    dist.reduce_scatter(tensor, parts)
    dist.broadcast(tensor, src=1)
    dist.barrier(dist.new_group([0, 1]))
    everyone: Any = dist.group.WORLD
    total = functional.wait_tensor(functional.all_reduce(tensor, "sum", everyone))
    return tensor.tolist() == [6.0, 6.0] and total.tolist() == [12.0, 12.0]


def _messages(rank: int) -> bool:
    sent, received, peer = torch.full((2,), rank + 1.0), torch.empty(2), 1 - rank
    batch = [dist.P2POp(dist.isend, sent, peer), dist.P2POp(dist.irecv, received, peer)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return received.tolist() == [peer + 1.0] * 2


def _placements(rank: int) -> bool:
    mesh = dist.init_device_mesh("cpu", (_RANKS,))
    partial = DTensor.from_local(torch.full((2,), rank + 1.0), mesh, [Partial()])
    total = partial.redistribute(mesh, [Replicate()]).to_local()
    doubled: Any = partial.redistribute(mesh, [Shard(0)]).detach() * 2
    # See Note [Obvious plans].
    wide: Any = partial.to(torch.float64).add_(partial.to(torch.float64))
    return (
        total.tolist() == [3.0, 3.0]
        and doubled.to_local().tolist() == [6.0]
        and wide.to_local().tolist() == [2 * rank + 2.0] * 2
    )


def _streams(_: int) -> bool:
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        is_side = torch.cuda.current_stream() == side
        event = side.record_event()
    main.wait_event(event)
    return is_side and torch.cuda.current_stream() == main


def _recorded_operators() -> bool:
    machine = SimulatedMachine(1)

    def program(_: int) -> None:
        recorder, tensor = machine.recorders[0], torch.ones(2)
        with recorder.recording_accesses():
            tensor.add_(1)
            with torch.cuda.stream(torch.cuda.Stream()):
                tensor.mul_(2)

    threads, _ = machine.run(program)
    _raise_of(threads)
    seen = [each for each in machine.recorders[0].trace if isinstance(each, Access)]
    names = [(each.operator, each.stream == DEFAULT_STREAM) for each in seen]
    return names == [("aten.add_.Tensor", True), ("aten.mul_.Tensor", False)]


def _nodes_of_autograd() -> bool:
    leaf, running = torch.ones(2, requires_grad=True), list[object]()
    number = next_sequence_number()
    doubled = leaf * 2
    doubled.register_hook(lambda _: running.append(running_node()))
    doubled.sum().backward()
    is_numbered = sequence_number_of(doubled.grad_fn) == number
    return is_numbered and running == [doubled.grad_fn] and running_node() is None


def _hooks_of_parameters() -> bool:
    early, late = (torch.ones(2, requires_grad=True) for _ in range(2))
    handles = early.register_hook(abs), late.register_post_accumulate_grad_hook(print)
    lists = [
        (each._backward_hooks or {}, each._post_accumulate_grad_hooks or {})  # noqa: SLF001
        for each in (early, late)
    ]
    hooked_early({"early": early, "late": late})
    sizes = [(len(one), len(other)) for one, other in lists]
    for handle in handles:
        handle.remove()
    return sizes == [(1, 0), (0, 1)]


def _version_counters() -> bool:
    tensor = torch.ones(2)
    before = tensor._version  # noqa: SLF001
    with without_new_versions([tensor]):
        tensor.add_(1)
    return tensor._version == before and default_device().type == "cpu"  # noqa: SLF001


MECHANISMS: Final = (
    Mechanism("a node of autograd that runs", _nodes_of_autograd),
    Mechanism("the list of a parameter's hooks", _hooks_of_parameters),
    Mechanism("a write that no version counts", _version_counters),
    Mechanism(
        "a collective between ranks that are threads",
        functools.partial(_on_ranks, _collectives),
    ),
    Mechanism(
        "a batch of messages between ranks", functools.partial(_on_ranks, _messages)
    ),
    Mechanism(
        "a DTensor on a mesh of such ranks", functools.partial(_on_ranks, _placements)
    ),
    Mechanism("a stream without a device", functools.partial(_on_ranks, _streams)),
    Mechanism("an operator that the machine records", _recorded_operators),
)
