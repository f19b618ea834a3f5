"""Whatever order the streams allow, a right subject comes to right gradients."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.backends.sim import SimBackend
from syncverify.oracle import reference
from syncverify.ordering.inversions import Inversion, ordered_after
from syncverify.properties.judgement import Judgement
from syncverify.properties.values import gradient_equals_reference
from syncverify.run import Run
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.schedule import DEFAULT_SCHEDULE
from syncverify.sim.adversary import AdversarialRecorder, Lateness
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.rank_recorder import RankRecorder
from syncverify.subject import Capabilities, Subject
from syncverify.trace import Access, CollectiveLaunch, Moment

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (2, 1), 64
)


class Right:
    """Uses all kinds of operators, on streams that wait as they must."""

    def __init__(self, groups: Any, _cap: float, _accumulations: int) -> None:
        (self.parameter,) = [p for group in groups for p in group]

    def bind(self) -> None:
        self.side = torch.cuda.Stream()

    def wait(self) -> None:
        main, gradient = torch.cuda.current_stream(), self.parameter.grad.to_local()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            halves = list(torch._foreach_mul([gradient, gradient], 0.5))
            flat = torch.cat(halves)
            work = dist.all_reduce(flat, async_op=True)
            work.wait()
            assert torch.isfinite(flat).all().item() is True
            first, second = flat.split(2)
            gradient.copy_(torch.add(first, second))
        main.wait_stream(self.side)

    def zero_grad(self) -> None:
        self.parameter.grad = None

    def unbind(self) -> None: ...


RIGHT = Subject("right", Right, Capabilities(varying_accumulations=True))


def play(recorders: list[RankRecorder]) -> Run:
    run = SimBackend().run_with(SCENARIO, RIGHT, DEFAULT_SCHEDULE, recorders)
    assert run.fault is None, run.fault
    return run
