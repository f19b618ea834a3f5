"""Facts about private names of torch; a release of torch that changes one fails here."""

import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

from syncverify.sim.device.torch_internals import (
    default_device,
    forget_backend,
)


def test_the_default_device_is_the_innermost_that_is_named() -> None:
    cpu, meta = torch.device("cpu"), torch.device("meta")
    assert default_device() == cpu
    with meta:
        assert default_device() == meta
        with cpu:
            assert default_device() == cpu
    torch.set_default_device(meta)
    try:
        assert default_device() == meta
    finally:
        torch.set_default_device(None)


def test_a_forgotten_backend_keeps_no_maker_alive() -> None:
    """Kept, it would hold the world of its run. The name may be registered again."""
    for _ in range(2):

        def create(
            _store: dist.Store, _rank: int, _size: int, _limit: timedelta
        ) -> None:
            """Never called: no group is made."""

        dist.Backend.register_backend("forgettable", create, devices=["cpu"])
        maker = weakref.ref(create)
        del create
        assert maker() is not None
        forget_backend("forgettable")
        assert maker() is None
