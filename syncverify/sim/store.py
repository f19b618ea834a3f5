"""The store in which simulated ranks meet: waiting for a key gives the turn away."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.scheduler import Scheduler
from syncverify.sim.stalls import Wait


class SimulatedStore(dist.Store):
    """Keys and values that all ranks of a world share.

    A rank that asks for a key which nobody has set blocks, as in a collective: another
    one runs, and where none can the run ends and says so.

    Args:
        scheduler: Whose turns to give away.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._values: dict[str, bytes] = {}

    @override
    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    @override
    def get(self, key: str) -> bytes:
        """Return the value of a key, once there is one."""
        self.wait([key])
        return self._values[key]

    @override
    def add(self, key: str, amount: int) -> int:
        """Add to a number, which starts at 0, and return the sum."""
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    @override
    def check(self, keys: list[str]) -> bool:
        """Tell whether all keys are set."""
        return all(key in self._values for key in keys)

    @override
    def delete_key(self, key: str) -> bool:
        """Forget a key, and tell whether it was set."""
        return self._values.pop(key, None) is not None

    deleteKey = delete_key  # noqa: N815  # what torch's `PrefixStore` calls

    @override
    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Give the turn away until all keys are set; there is no clock to time out."""
        if not self.check(keys):
            missing = ", ".join(key for key in keys if key not in self._values)
            self._scheduler.block_until(
                lambda: self.check(keys),
                Wait(f"store key {missing}", missing_ranks=lambda: ()),
            )
