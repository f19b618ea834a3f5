"""A test that torch's threaded process group passes, though its streams are in no order.

`MultiThreadedTestCase` runs ranks as threads, and its group moves data at once, in the order in
which the hosts issue collectives. So a test passes whose collective runs on a side stream that
nobody waits for; on GPUs it passes by luck. https://github.com/pytorch/pytorch/pull/195281 has
the story of FSDP2's tests.

    pytest examples/side_stream.py                      # both tests pass
    pytest examples/side_stream.py --simulate-ranks     # one fails: the wait that is missing
"""

import torch
import torch.distributed as dist
from torch.testing._internal.common_distributed import MultiThreadedTestCase


class TestSideStream(MultiThreadedTestCase):
    """Sums a gradient over the ranks on a stream of its own."""

    world_size = 2

    def setUp(self) -> None:
        super().setUp()
        self._spawn_threads()

    def reduce_on_side_stream(self, *, waits: bool) -> torch.Tensor:
        """Return the sum of a gradient that the current stream computes."""
        streams = torch.get_device_module("cpu")  # "cuda" on GPUs; the rest is the same
        side = streams.Stream()
        gradient = torch.full((4,), self.rank + 1.0) * 2
        if waits:
            side.wait_stream(streams.current_stream())
        with streams.stream(side):
            dist.all_reduce(gradient)
        streams.current_stream().wait_stream(side)
        return gradient

    def test_waits(self) -> None:
        total = self.reduce_on_side_stream(waits=True)
        assert total.tolist() == [6.0] * 4

    def test_passes_by_luck(self) -> None:
        total = self.reduce_on_side_stream(waits=False)
        assert total.tolist() == [6.0] * 4
