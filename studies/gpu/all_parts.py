"""All parts, in the order of the page."""

from studies.gpu import (
    bank,
    commands,
    host_waits,
    installation,
    shared_device,
    step_time,
    traces,
    words,
)
from studies.gpu.part import Part

PARTS: tuple[Part, ...] = (
    installation.PART,
    words.PART,
    commands.TESTS,
    commands.SEARCHES,
    shared_device.PART,
    bank.PART,
    traces.PART,
    host_waits.PART,
    step_time.PART,
)
