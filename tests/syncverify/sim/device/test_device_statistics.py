"""Numbers of the simulated GPU, on each release of torch, and its profilers."""

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from syncverify import simulate


def test_all_numbers_of_the_memory_are_answered(tmp_path: Path) -> None:
    def program() -> None:
        cuda, accelerator = torch.cuda, torch.accelerator
        assert "Allocated memory" in cuda.memory_summary()
        assert cuda.memory_summary(abbreviated=True)
        assert cuda.memory_stats()["allocated_bytes.all.peak"] > 0
        assert cuda.memory_allocated() / cuda.memory_reserved() < 1
        assert cuda.max_memory_allocated(0) <= cuda.max_memory_reserved(device="cuda")
        assert cuda.host_memory_stats()["num_host_alloc"] == 0
        assert cuda.memory_snapshot() == []
        for reset in (
            cuda.reset_peak_memory_stats, cuda.reset_accumulated_memory_stats,
            cuda.reset_peak_host_memory_stats, accelerator.reset_peak_memory_stats,
            cuda.empty_cache, accelerator.empty_cache, cuda.memory._record_memory_history,
        ):  # fmt: skip
            assert reset() is None
        cuda.memory._dump_snapshot(str(tmp_path / "snapshot"))
        assert accelerator.memory_allocated() == cuda.memory_allocated()
        assert accelerator.get_memory_info() == cuda.mem_get_info()
        cuda.set_per_process_memory_fraction(0.5)

    simulation = simulate(program, 2)
    assert (simulation.violations, simulation.refused) == ((), "")


def test_the_state_of_the_device_is_answered() -> None:
    def program() -> None:
        cuda = torch.cuda
        for number in (
            cuda.utilization, cuda.temperature, cuda.power_draw, cuda.clock_rate,
            cuda.memory_usage, cuda.device_memory_used,
        ):  # fmt: skip
            assert number() > 0
        assert cuda.list_gpu_processes().startswith("GPU:")
        assert cuda.get_device_properties(0).multi_processor_count > 0
        assert cuda.get_arch_list() == ["sm_90"]
        assert "sm_90" in cuda.get_gencode_flags()
        assert cuda.is_tf32_supported()
        assert cuda.get_allocator_backend() == "native"

    simulation = simulate(program, 2)
    assert (simulation.violations, simulation.refused) == ((), "")


def test_a_profiler_starts_and_ends_and_records_nothing(tmp_path: Path) -> None:
    def program(rank: int) -> None:
        both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        kept = schedule(wait=1, warmup=1, active=1, repeat=1)
        with profile(activities=both, schedule=kept, profile_memory=True) as profiler:
            for _ in range(4):
                with record_function("step"):
                    torch.ones(4, device="cuda") * 2
                profiler.step()
        assert list(profiler.events()) == []
        assert profiler.key_averages().table(sort_by="cuda_time_total") == ""
        profiler.export_chrome_trace(str(tmp_path / f"{rank}.json"))
        with torch.autograd.profiler.profile(), torch.cuda.profiler.profile():
            torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("step"))

    simulation = simulate(program, 2)
    assert (simulation.violations, simulation.refused) == ((), "")
    assert json.loads((tmp_path / "1.json").read_text())["traceEvents"] == []


@pytest.mark.parametrize("is_profiled", [False, True])
def test_the_end_of_a_profiler_orders_no_stream(is_profiled) -> None:
    """A program is wrong without a wait, also while somebody looks at its times."""

    def program() -> torch.Tensor:
        data, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
        profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        if is_profiled:
            profiler.start()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            data.mul_(2)
        if is_profiled:
            profiler.stop()
        return data + 1

    simulation = simulate(program, 1)
    found = [each.violation.property for each in simulation.violations]
    assert found
    assert all("order" in name or "wait" in name for name in found)
