"""The store of a simulated world: a rank that waits for a key gives its turn away."""

from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.turns.refusals import refusal
from syncverify.sim.turns.stalls import TurnTaking, Wait
from syncverify.sim.turns.turn_log import AccessKind


class SimulatedStore(dist.Store):
    """Keys and values that all ranks of a world share.

    A rank that asks for a missing key blocks, as in a collective: another rank runs. If no
    rank can run, the run ends with a stall that names the key.
    """

    def __init__(self, scheduler: TurnTaking) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._values: dict[str, bytes] = {}

    @override
    def set(self, key: str, value: str | bytes) -> None:
        self._write(key)
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)
        self._changed(key)

    @override
    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    @override
    def add(self, key: str, amount: int) -> int:
        self._write(key)
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        self._changed(key)
        return total

    @override
    def check(self, keys: list[str]) -> bool:
        self._scheduler.offer_turn()
        for key in keys:
            self._scheduler.note_access(_resource(key), AccessKind.READ)
        return self._has(keys)

    @override
    def delete_key(self, key: str) -> bool:
        self._scheduler.offer_turn()
        self._scheduler.note_access(_resource(key), AccessKind.WRITE)
        before = self._values.pop(key, None)
        self._changed(key)
        return before is not None

    deleteKey = delete_key  # noqa: N815  # what torch's `PrefixStore` calls

    @override
    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Give the turn away until all keys are set; there is no clock to time out."""
        for key in keys:
            self._scheduler.block_until(
                partial(self._has, [key]),
                Wait(f"store key {key}", lambda: (), _resource(key)),
            )

    # torch would raise an error that reads like the subject's own.
    append: Any = refusal("the store's append")
    clone: Any = refusal("the store's clone")
    compare_set: Any = refusal("the store's compare_set")
    list_keys: Any = refusal("the store's list_keys")
    num_keys: Any = refusal("the store's num_keys")
    queue_len: Any = refusal("the store's queue_len")
    queue_pop: Any = refusal("the store's queue_pop")
    queue_push: Any = refusal("the store's queue_push")

    def _write(self, key: str) -> None:
        self._scheduler.offer_turn()
        access = AccessKind.WRITE if key in self._values else AccessKind.CREATE
        self._scheduler.note_access(_resource(key), access)

    def _changed(self, key: str) -> None:
        """Tell that a key has another value, or none."""

    def _has(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)


def _resource(key: str) -> str:
    return f"store key {key}"
