"""The caller's handle of a collective whose results are held by the handle alone."""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.network.work import SimulatedWork, refusing_rest_of_work
from syncverify.trace.source_lines import Origin


@refusing_rest_of_work
class DroppableHandle(dist.Work):
    """A handle that lets go of the results as it is dropped; see Note [Dropped handles].

    Args:
        work: The machine's own handle, which is waited for in the place of this one.
    """

    def __init__(self, work: SimulatedWork) -> None:
        super().__init__()
        self._work = work

    def __del__(self) -> None:
        """Let go of the results."""
        self._work.let_go_of_results()

    @property
    def launched_at(self) -> Origin:
        """Line of the subject that issued the collective."""
        return self._work.launched_at

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        return self._work.wait(timeout)

    @override
    def block_current_stream(self) -> None:
        self._work.block_current_stream()

    @override
    def is_completed(self) -> bool:
        return self._work.is_completed()

    @override
    def is_success(self) -> bool:
        return self._work.is_success()

    @override
    def exception(self) -> Exception | None:
        return self._work.exception()

    @override
    def synchronize(self) -> None:
        self._work.synchronize()

    @override
    def result(self) -> list[torch.Tensor]:
        return self._work.result()

    @override
    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future, which holds this handle and so the results."""
        return self._work.future_of(self, sys._getframe(1).f_code)

    def settle(self) -> None:
        """Block this rank until the results are in memory; no stream is ordered after them."""
        self._work.settle()

    def settle_in_turn(self) -> None:
        """Block this rank until the results are in memory, or known to fail."""
        self._work.settle_in_turn()

    def order(self) -> None:
        """Order the current stream after the collective, and let go of its inputs."""
        self._work.order()

    def when_settled(self, run: Callable[[], None]) -> None:
        """Call a function when the results are in memory."""
        self._work.when_settled(run)

    _get_duration: Any = SimulatedWork._get_duration  # noqa: SLF001  # refused alike
    get_future_result: Any = SimulatedWork.get_future_result
