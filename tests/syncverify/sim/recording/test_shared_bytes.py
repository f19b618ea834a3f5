"""Two storages over the same bytes are one memory: DLPack, NumPy, buffers."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.distributed as dist

from syncverify import simulate

Alias = Callable[[torch.Tensor], torch.Tensor]


def as_strided(tensor: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(tensor, (2,), (1,), 2)


def in_another_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, device=tensor.device).set_(tensor.untyped_storage())


def through_a_capsule(tensor: torch.Tensor) -> torch.Tensor:
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))


def last_half(tensor: torch.Tensor) -> torch.Tensor:
    return torch.from_dlpack(tensor[2:])


ON_DEVICE: tuple[Alias, ...] = (
    as_strided,
    in_another_tensor,
    last_half,
    through_a_capsule,
    torch.from_dlpack,
)
ON_HOST: tuple[Alias, ...] = (
    *ON_DEVICE,
    lambda tensor: torch.from_numpy(tensor.numpy()),
    lambda tensor: torch.asarray(tensor.numpy()),
    lambda tensor: torch.from_dlpack(tensor.numpy()),
    lambda tensor: torch.frombuffer(
        memoryview(tensor.numpy()), dtype=torch.int8, offset=5
    ),
)


def found_in(program: Callable[[int], object], device: str = "cuda") -> list[str]:
    simulation = simulate(program, 2, device=device)
    assert not simulation.refused
    return [each.violation.cause for each in simulation.violations]


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("alias", ON_DEVICE)
def test_another_storage_over_bytes_of_a_collective_is_its_memory(
    alias: Alias, is_early
) -> None:
    def program(rank: int) -> torch.Tensor:
        tensor = torch.full((4,), float(rank), device="cuda")
        work = dist.all_reduce(tensor, async_op=True)
        if is_early:
            read = alias(tensor).clone()
            work.wait()
            return read
        work.wait()
        return alias(tensor).clone()

    assert found_in(program) == ["race"] * is_early


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("alias", ON_HOST)
def test_another_storage_over_bytes_of_the_host_is_its_memory(
    alias: Alias, is_early
) -> None:
    def program(_: int) -> torch.Tensor:
        host = torch.empty(4, pin_memory=True)
        twin = alias(host)
        host.copy_(torch.ones(4, device="cuda"), non_blocking=True)
        if not is_early:
            torch.cuda.synchronize()
        read = twin.clone()
        torch.cuda.synchronize()
        return read

    assert found_in(program) == ["race"] * is_early


def parts_of_a_buffer(_: int) -> list[torch.Tensor]:
    buffer = np.zeros(8, dtype=np.float32)
    parts = [torch.from_numpy(buffer[:4]), torch.from_numpy(buffer[4:])]
    work = dist.all_reduce(parts[1], async_op=True)
    parts[0].add_(1)
    work.wait()
    return parts


def a_buffer_after_its_parts(_: int) -> torch.Tensor:
    buffer = np.zeros(8, dtype=np.float32)
    parts = [torch.from_numpy(buffer[:4]), torch.from_numpy(buffer[4:])]
    parts[0].add_(1)
    work = dist.all_reduce(parts[1], async_op=True)
    whole = torch.from_numpy(buffer).add_(1)
    work.wait()
    return whole


def test_a_buffer_has_the_bytes_of_parts_that_were_seen_before() -> None:
    assert found_in(parts_of_a_buffer, "cpu") == []
    report = str(simulate(a_buffer_after_its_parts, 2, device="cpu"))
    assert "  memory:     bytes 16 to 32 of storage 0\n" in report


@pytest.mark.parametrize("is_last", [True, False])
def test_memory_is_free_when_its_last_storage_is_gone(is_last) -> None:
    def program(_: int) -> None:
        side = torch.cuda.Stream()
        tensor = torch.ones(4, device="cuda")
        twin = torch.from_dlpack(tensor)
        other = None if is_last else tensor
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            twin.add_(1)
        del tensor, twin
        torch.ones(4, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        del other

    assert found_in(program) == ["freed_in_use"] * is_last


def copies_of_one_array(_: int) -> list[torch.Tensor]:
    array = np.ones(4, dtype=np.float32)
    tensors = [
        torch.from_numpy(array).cuda(),
        torch.as_tensor(array, device="cuda"),
        torch.asarray(array, device="cuda"),
        torch.from_dlpack(array).cuda(),
    ]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors[::2]]
    for tensor in tensors[1::2]:
        tensor.add_(1)
    for work in works:
        work.wait()
    array[:] = 7
    return tensors


def test_an_array_that_goes_to_the_device_is_copied() -> None:
    simulation = simulate(copies_of_one_array, 2)
    simulation.check()
    first, second = simulation.results
    assert [tensor.tolist() for tensor in first + second] == [[2.0] * 4] * 8
