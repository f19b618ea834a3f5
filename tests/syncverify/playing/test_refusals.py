"""A machine that refused anything judges nothing, whatever the subject does with the exception."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.cuda import CUDAGraph
from torch.distributed.tensor import DTensor, Shard

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.playing.fake import FakeBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter

SCENARIO = one_parameter(2, "p", (3,))
Ask = Callable[[Any], Any]
# Its thread starts in one run, and lives on in the next.
OLD_POOL = ThreadPoolExecutor(1)


def world() -> Any:
    return dist.group.WORLD


def store() -> Any:
    return dist.distributed_c10d._get_default_store()


ONE = torch.ones(1)
ON_THE_RANK: dict[str, Ask] = {
    "AVG of bool": lambda _: dist.all_reduce(ONE.bool(), dist.ReduceOp.AVG),
    "recv from any rank": lambda _: dist.recv(ONE),
    "collectives of sparse tensors": lambda _: dist.all_reduce(ONE.to_sparse()),
    # gloo has it, NCCL does not.
    "monitored_barrier (torch's function)": lambda _: dist.monitored_barrier(),
    "a backend of a group": lambda _: world()._get_backend(torch.device("cpu")),
    "the store's compare_set": lambda _: store().compare_set("a", "", "b"),
    "CUDA graphs": lambda _: torch.cuda.CUDAGraph(),
    "CUDA graphs (an imported name)": lambda _: CUDAGraph(),
    "streams that others have made": lambda _: torch.cuda.ExternalStream(7),
    "pools of memory": lambda _: torch.cuda.MemPool(),
    "CUDA devices": lambda _: torch.zeros(1, device="cuda"),
    "events of other processes": lambda _: torch.cuda.Event().ipc_handle(),
}
if hasattr(torch.accelerator, "Graph"):  # from torch 2.12 on
    ON_THE_RANK["graphs of accelerators"] = lambda _: torch.accelerator.Graph()


def _all_reduce(tensor: Any) -> None:
    dist.all_reduce(tensor.grad.to_local())


ON_A_THREAD: dict[str, Ask] = {
    "collective": _all_reduce,
    "functional": lambda t: funcol.all_reduce(t.grad.to_local(), "sum", world()),
    "redistribution": lambda t: DTensor.from_local(
        torch.ones(1), t.device_mesh, [Shard(0)]
    ).full_tensor(),
    "mesh": lambda t: t.device_mesh.get_group(),
}
STREAMS_ON_A_THREAD: dict[str, Ask] = {
    "stream": lambda _: torch.cuda.current_stream(),
    "device": lambda _: torch.zeros(1, device="cuda"),
}


def on_a_thread(act: Ask) -> Ask:
    """Act on another thread, and raise here what it raised there."""

    def ask(tensor: Any) -> None:
        raised: list[BaseException] = []

        def run() -> None:
            try:
                act(tensor)
            except BaseException as error:  # noqa: BLE001  # raised below
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    return ask


def on_a_thread_of_a_thread(tensor: Any) -> None:
    on_a_thread(on_a_thread(_all_reduce))(tensor)


def on_an_old_pool(tensor: Any) -> None:
    OLD_POOL.submit(_all_reduce, tensor).result()


class Reduces(PlainGrads):
    """Sums the gradient of each parameter in `wait()`, and asks for a feature before that."""

    ask: Any
    error: BaseException | None = None

    def wait(self) -> None:
        for each in self.parameters:
            self.asking(each)
        super().wait()

    def asking(self, tensor: Any) -> None:
        type(self).ask(tensor)


class Wraps(Reduces):
    def asking(self, tensor: Any) -> None:
        try:
            super().asking(tensor)
        except BaseException as error:
            raise RuntimeError("the worker failed") from error


class Hides(Reduces):
    def asking(self, tensor: Any) -> None:
        try:
            super().asking(tensor)
        except BaseException:  # noqa: BLE001  # the ways of a subject
            raise RuntimeError("the worker failed") from None


class Stores(Reduces):
    def asking(self, tensor: Any) -> None:
        try:
            super().asking(tensor)
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def zero_grad(self) -> None:
        super().zero_grad()
        if self.error:
            raise RuntimeError("an earlier call failed")


class Swallows(Stores):
    def zero_grad(self) -> None:
        Reduces.zero_grad(self)


class SwallowsAndReducesNothing(Swallows):
    def wait(self) -> None:
        for each in self.parameters:
            self.asking(each)


class SwallowsAndHangs(SwallowsAndReducesNothing):
    def wait(self) -> None:
        super().wait()
        if dist.get_rank() == 0:
            dist.barrier()


HANDLINGS = (
    Reduces, Wraps, Hides, Stores, Swallows, SwallowsAndReducesNothing, SwallowsAndHangs,
)  # fmt: skip


def refusal_on(
    backend: SimBackend | FakeBackend,
    handling: type[Reduces],
    ask: Ask,
    **promises: Any,
) -> str:
    capabilities = Capabilities(**promises)
    kind = type(
        "Asks", (handling,), {"ask": staticmethod(ask), "capabilities": capabilities}
    )
    with pytest.raises(EnvironmentNotSupportedError) as caught:
        backend.run(SCENARIO, resolve(kind))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "handling"),
    [
        *((name, Swallows) for name in ON_THE_RANK),
        *(("recv from any rank", handling) for handling in HANDLINGS),
    ],
)
def test_a_feature_that_is_not_simulated_is_not_judged(
    name: str, handling: type[Reduces]
) -> None:
    refusal = refusal_on(SimBackend(), handling, ON_THE_RANK[name])
    assert refusal.startswith(
        f"the sim backend does not simulate {name.partition(' (')[0]}"
    )
    assert "test_refusals.py:" in refusal


THREADS: dict[str, Ask] = {
    **{name: on_a_thread(act) for name, act in ON_A_THREAD.items()},
    "thread of a thread": on_a_thread_of_a_thread,
    "old pool": on_an_old_pool,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "handling"),
    [
        *((name, Swallows) for name in (*THREADS, *STREAMS_ON_A_THREAD)),
        *(("collective", handling) for handling in (Hides, SwallowsAndHangs)),
    ],
)
def test_a_thread_beside_its_rank_is_not_judged(
    name: str, handling: type[Reduces]
) -> None:
    acts = {
        **THREADS,
        **{key: on_a_thread(act) for key, act in STREAMS_ON_A_THREAD.items()},
    }
    refusal = refusal_on(SimBackend(), handling, acts[name])
    does = "communicate" if name in THREADS else "use CUDA"
    assert refusal.startswith(
        f"the sim backend does not simulate threads that {does} beside their rank, as at "
    )
    assert "; let the rank's own thread do it (`syncverify run` has" in refusal
    assert "test_refusals.py:" in refusal


def test_a_thread_without_a_line_is_named_by_the_line_that_started_it() -> None:
    def ask(subject: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(dist.all_reduce, torch.zeros(1)).result()

    refusal = refusal_on(SimBackend(), Reduces, ask)
    assert "as in the thread that was started at" in refusal
    assert "test_refusals.py:" in refusal


def test_a_thread_that_communicates_is_not_judged_without_data() -> None:
    refusal = refusal_on(FakeBackend(), SwallowsAndReducesNothing, THREADS["mesh"])
    assert refusal.startswith(
        "the fake backend does not simulate threads that communicate beside their rank, as "
        "at "
    )


@pytest.mark.parametrize("handling", [Reduces, Wraps])
def test_a_kernel_below_a_seen_device_is_not_judged(handling: type[Reduces]) -> None:
    def launch(_: Any) -> None:
        raise RuntimeError("Triton Error [CUDA]: context is destroyed")

    refusal = refusal_on(SimBackend(), handling, launch, device="cuda")
    assert refusal.startswith(
        "the sim backend simulates CUDA for the subject's Python code, "
    )


@pytest.mark.parametrize(
    ("act", "fault_kind"),
    [
        (
            lambda _: dist.all_reduce(torch.ones(2 + dist.get_rank())),
            "collective_mismatch",
        ),
        (lambda _: dist.send(ONE, dist.get_rank()), "raised"),
        (lambda _: dist.new_group(backend="bogus"), "raised"),
        (on_a_thread(lambda _: 1 / 0), "raised"),
    ],
)
def test_what_a_real_group_raises_too_is_an_error_of_the_subject(
    act: Ask, fault_kind: str
) -> None:
    kind = type("Asks", (Reduces,), {"ask": staticmethod(act)})
    fault = SimBackend().run(SCENARIO, resolve(kind)).fault
    assert fault.kind == fault_kind


def test_a_thread_that_does_not_communicate_is_judged() -> None:
    def asks_for_its_rank(tensor: Any) -> None:
        assert dist.get_rank() in range(dist.get_world_size())
        tensor.grad.to_local().cpu().add_(torch.zeros(3))

    ask = on_a_thread(asks_for_its_rank)
    kind = type("Asks", (Reduces,), {"ask": staticmethod(ask)})
    for backend in (SimBackend(), FakeBackend()):
        assert backend.run(SCENARIO, resolve(kind)).fault is None
