"""torch's open question TODO(#181218): is the wait of a partial group's backward needed?

`fully_shard([norm, head])` makes one group of two modules. A loss in chunks runs `head` several
times, so each chunk ends in a backward of a part of the group. FSDP2 then lets the current stream
wait for the reduction. By CUDA's rules no order needs that wait, and it takes a reduction off
the overlap for each chunk but the last.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from syncverify.explain.waits.exposed_time import Link, microseconds
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.judge.ordering.races import judge_orderings
from syncverify.judge.ordering.removed_points import points_of, without
from syncverify.playing.play import play
from syncverify.trace.source_lines import code_of_line
from syncverify.trace.sync_points import SyncPoint
from tests.quality.test_planted_waits import num_disorders

pytestmark = pytest.mark.slow
LINK = Link(latency_microseconds=20, gigabytes_per_second=50)
WAIT = "self.device_handle.current_stream().wait_event("
# Since torch 2.14 the statement has several lines, of which traces name the first.
PARTIAL = (WAIT, f"{WAIT}self._post_reduce_event)")
COPY_IN = "reduce_scatter_stream.wait_stream(current_stream)"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.norm, self.head = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = self.norm(self.body(batch))
        return normed


def loss_in_chunks(num_chunks: int) -> Callable[[], None]:
    def program() -> None:
        torch.manual_seed(0)
        model = Model().cuda()
        fully_shard(model.body)
        fully_shard([model.norm, model.head])
        fully_shard(model)
        hidden = model(torch.ones(4 * num_chunks, 8, device="cuda"))
        leaf = hidden.detach().requires_grad_()
        for chunk in leaf.chunk(num_chunks):
            model.head(chunk).sum().backward()
        hidden.backward(leaf.grad)

    return program


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="the wait came with torch 2.13",
)
@pytest.mark.parametrize(("num_chunks", "expected"), [(2, 15), (4, 25)])
def test_no_order_needs_the_wait_of_a_partial_group(
    num_chunks: int, expected: float
) -> None:
    played = play(SimulatedProgram(loss_in_chunks(num_chunks), 2, "cuda"))
    assert played.run.fault is None
    traces = [each.trace for each in played.run.ranks]
    assert num_disorders(traces[0], traces[1:]) == 0
    points = {
        point.line.function: point
        for point in points_of(traces)
        if code_of_line(point.line) in {*PARTIAL, COPY_IN}
    }

    def disorders_without(point: SyncPoint) -> int:
        found = judge_orderings(without(traces, point))
        return len(found.races) + len(found.early_frees)

    # The harness sees that an order needs this wait.
    assert disorders_without(points["foreach_reduce"]) > 0
    partial = points["post_backward"]
    assert disorders_without(partial) == 0
    saved = microseconds(traces, LINK) - microseconds(without(traces, partial), LINK)
    # Microseconds of the step; the chunks of a longer loss hide more of the reductions.
    assert saved == pytest.approx(expected, abs=0.1)
