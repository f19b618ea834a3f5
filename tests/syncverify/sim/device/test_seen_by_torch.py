"""Lines of torch see the CUDA devices that a program sees, and make tensors on the host."""

import io
from operator import attrgetter
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.tensor as tensors
from torch import nn
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard as LocalShard
from torch.distributed._shard.sharded_tensor import init_from_local_shards
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from syncverify.judge.ordering.races import judge_orderings
from syncverify.trace.records import HostWait, StorageFreed
from tests.free_programs import Program, in_new_process, play


def host_waits(program: Program) -> int:
    """Count the waits of rank 0's host in a program that uses a second stream."""

    def with_streams(rank: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.ones(2, device="cuda").add_(1)
        program(rank)

    trace = play(with_streams, 2, device="cuda").recorders[0].trace
    return sum(isinstance(each, HostWait) for each in trace)


def steps(num_steps: int, **options: Any) -> Program:
    """Return a program that takes steps of AdamW."""

    def program(_: int) -> None:
        with torch.device("cuda"):
            model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            inputs = torch.ones(2, 4)
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        for _ in range(num_steps):
            model(inputs).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return program


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {}])
def test_counters_of_steps_lie_in_memory_of_the_host(options: dict[str, Any]) -> None:
    """No GPU makes the host wait for them, and so no race is hidden behind such a wait."""
    assert host_waits(steps(2, **options)) == host_waits(steps(0)) == 0


def test_a_capturable_optimizer_keeps_its_counters_on_the_device() -> None:
    places: list[str] = []

    def program(_: int) -> None:
        parameter = nn.Parameter(torch.ones(2, device="cuda"))
        for capturable in (False, True):
            optimizer = torch.optim.AdamW([parameter], capturable=capturable)
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
            places.append(optimizer.state[parameter]["step"].device.type)

    play(program, 1, device="cuda")
    assert places == ["cpu", "cuda"]


def data_parallel(rank: int) -> None:
    model = DistributedDataParallel(nn.Linear(4, 4).cuda(), device_ids=[rank])
    model(torch.ones(2, 4)).sum().backward()  # moved by torch
    assert model.device == torch.device("cuda", rank)


def mesh(rank: int) -> None:
    weight = nn.Linear(2, 2).weight.data.cuda()
    whole = init_device_mesh("cuda", (dist.get_world_size(),))
    sharded = distribute_tensor(weight, whole, [Shard(0)])
    assert sharded.device == torch.device("cuda", rank)
    assert (sharded + sharded).full_tensor().is_cuda


def random_numbers_of_a_mesh(_: int) -> None:
    whole = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.manual_seed(0)
    numbers = tensors.rand(64, device_mesh=whole, placements=[Shard(0)])
    assert len({*numbers.full_tensor().tolist()}) == 64
    kept = nn.functional.dropout(
        DTensor.from_local(torch.ones(64).cuda(), whole, [Shard(0)])
    )
    halves = kept.full_tensor().view(dist.get_world_size(), -1)  # type: ignore[attr-defined]
    assert not torch.equal(halves[0], halves[1])


def recomputed(_: int) -> None:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).cuda()
    given = torch.ones(2, 4, device="cuda", requires_grad=True)
    for reentrant in (True, False):
        checkpoint(layers, given, use_reentrant=reentrant).sum().backward()


def scaled(_: int) -> None:
    scaler = torch.amp.GradScaler("cuda")
    parameter = nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    assert parameter.tolist() == [0.5, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [data_parallel, mesh, random_numbers_of_a_mesh, recomputed, scaled]
)
def test_torch_runs_its_code_for_gpus(program: Program) -> None:
    machine = play(program, 2, device="cuda")
    found = judge_orderings([each.trace for each in machine.recorders])
    assert found.races == found.early_frees == ()


def test_a_generator_of_cuda_goes_back_to_its_state() -> None:
    def program(_: int) -> None:
        torch.cuda.manual_seed(3)
        state = torch.cuda.get_rng_state()
        assert (state.numel(), state.is_cpu) == (16, True)
        first = torch.rand(3, device="cuda").tolist()
        assert not torch.equal(torch.cuda.get_rng_state(), state)
        torch.cuda.set_rng_state(state)
        assert torch.rand(3, device="cuda").tolist() == first
        assert torch.cuda.initial_seed() == 3

    play(program, 1, device="cuda")


def test_a_state_made_by_hand_may_have_any_seed() -> None:
    """DTensor makes one by hand when it draws values, after torchtitan's seed of 63 bits."""

    def program(_: int) -> None:
        drawn = []
        for offset in (4, 8, 4):
            state = torch.tensor([2**62, offset]).view(torch.uint8)
            torch.cuda.set_rng_state(state)
            drawn.append(torch.rand(3, device="cuda").tolist())
        assert drawn[0] == drawn[2] != drawn[1]

    play(program, 1, device="cuda")


def test_a_module_moves_to_the_number_of_a_gpu() -> None:
    def program(rank: int) -> None:
        model = torch.nn.Linear(2, 2).to(rank)
        assert model.weight.device == torch.device("cuda", rank)
        assert model.to(rank, torch.float64).weight.dtype == torch.float64

    play(program, 2, device="cuda")


def _loads(_: int) -> None:
    data = TensorDataset(torch.arange(8.0).view(4, 2))
    loader = DataLoader(data, 2, num_workers=1, pin_memory=True)
    rows = [batch[0].cuda(non_blocking=True) for batch in loader]
    assert torch.cat(rows).tolist() == data.tensors[0].tolist()


def _plays_loads() -> None:
    play(_loads, 1, device="cuda")


@pytest.mark.long(5)
def test_a_thread_of_a_loader_pins_memory() -> None:
    in_new_process(_plays_loads)


class Pair(torch.Tensor):
    """A tensor that wraps two others, as those of quantized weights do."""

    first: torch.Tensor
    second: torch.Tensor

    @staticmethod
    def __new__(cls, first: torch.Tensor, second: torch.Tensor) -> "Pair":
        make: Any = torch.Tensor._make_wrapper_subclass
        pair: Pair = make(
            cls,
            first.size(),
            strides=first.stride(),
            dtype=first.dtype,
            device=first.device,
        )
        pair.first, pair.second = first, second
        return pair

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["first", "second"], None

    @staticmethod
    def __tensor_unflatten__(parts: Any, *_: Any) -> "Pair":
        return Pair(**parts)

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        parts = [
            func(*tree_map_only(cls, attrgetter(name), args), **(kwargs or {}))
            for name in ("first", "second")
        ]
        if not isinstance(parts[0], torch.Tensor):
            return parts[0]
        pair = cls(*parts)
        # torch compares the devices of storages, the true ones.
        return return_and_correct_aliasing(func, args, kwargs or {}, pair)


def wrapped(rank: int) -> None:
    device = torch.device("cuda", rank)
    pair = Pair(torch.ones(4, device="cuda"), torch.ones(4, device="cuda"))
    made = pair, pair.detach(), pair[1:], pair * 2, torch.empty_like(pair)
    for each in (*made, nn.Parameter(pair), pair.to("cpu").to("cuda")):
        assert (type(each), each.device) == (Pair, device)
        assert each.first.device == each.second.device == device
    for copied in (pair.cpu(), pair.to("cpu"), torch.empty_like(pair, device="cpu")):
        assert type(copied) is Pair
        assert copied.is_cpu
        assert copied.first.is_cpu
    assert pair.is_cuda


def wrapped_on_host(_: int) -> None:
    pair = Pair(torch.ones(4), torch.ones(4))
    assert pair.is_cpu
    assert pair.to("cuda").is_cuda


def parts_of_a_checkpoint(rank: int) -> None:
    for place in (f"cuda:{rank}", "cpu"):
        metadata = ShardMetadata([2 * rank, 0], [2, 2], f"rank:{rank}/{place}")
        shard = LocalShard(torch.ones(2, 2, device=place), metadata)
        whole = init_from_local_shards([shard], 4, 2)
        assert whole.device == torch.device(place)


@pytest.mark.parametrize(
    "program",
    [wrapped, wrapped_on_host, parts_of_a_checkpoint],
    ids=lambda program: program.__name__,
)
@pytest.mark.filterwarnings("ignore:Please use DTensor:FutureWarning")
def test_a_tensor_of_tensors_is_where_they_are(program: Program) -> None:
    machine = play(program, 2, device="cuda")
    found = judge_orderings([each.trace for each in machine.recorders])
    assert found.races == found.early_frees == ()


def test_memory_of_a_wrapped_tensor_is_held_for_a_stream() -> None:
    def program(_: int) -> None:
        pair = Pair(torch.ones(4, device="cuda"), torch.ones(4, device="cuda"))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            pair.add_(1)
        pair.record_stream(side)
        del pair

    trace = play(program, 1, device="cuda").recorders[0].trace
    freed = [each for each in trace if isinstance(each, StorageFreed)]
    assert [len(each.recorded_streams) for each in freed] == [1, 1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_fsdp1_collects_the_state_of_an_optimizer() -> None:
    """FSDP1 has another name for the device of objects, and takes the number of a GPU."""

    def program(_: int) -> None:
        model = FullyShardedDataParallel(
            nn.Sequential(nn.Linear(4, 4)),
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
            device_id=torch.cuda.current_device(),
            use_orig_params=True,
        )
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()
        with FullyShardedDataParallel.state_dict_type(
            model, StateDictType.SHARDED_STATE_DICT
        ):
            collected = FullyShardedDataParallel.optim_state_dict(model, optimizer)
        assert {*collected["state"]} == {"0.weight", "0.bias"}

    play(program, 2, device="cuda")


@pytest.mark.parametrize(
    "location", ["cuda", torch.device("cuda"), "cuda:0", {"cuda:0": "cuda:1"}, None]
)
def test_a_file_is_loaded_on_the_device(location: Any) -> None:
    def program(rank: int) -> None:
        saved = io.BytesIO()
        torch.save({"weight": torch.ones(2, device="cuda")}, saved)
        saved.seek(0)
        loaded = torch.load(saved, map_location=location)
        assert loaded["weight"].device == torch.device("cuda", rank)

    play(program, 1, device="cuda")
