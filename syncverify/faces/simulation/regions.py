"""Regions: names that a program gives to its parts, for reports and timelines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncverify.sim.device.streams import own_streams
from syncverify.trace.records import Moment


@contextmanager
def region(name: str, *, step: int = 0) -> Iterator[None]:
    """Name the work of a block in reports: `with syncverify.region("backward", step=1):`.

    Outside of a simulation the block runs as it is, so a program that runs on GPUs as well
    may keep its regions.

    Args:
        name: Name of the region.
        step: Number of the training step, from 0.
    """
    streams = own_streams()
    if streams is None:
        yield
        return
    with streams.at(Moment(name, step)):
        yield
