"""A run leaves nothing of itself in the process."""

import gc
import weakref

import pytest
import torch.distributed as dist

from syncverify.backends.sim import SimBackend
from syncverify.sim import machine as machine_module
from syncverify.sim.machine import SimulatedMachine
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter

SCENARIO = one_parameter(2)


@pytest.mark.long
@pytest.mark.parametrize("name", ["synchronizer", "ddp"])
def test_no_machine_outlives_its_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process plays tens of thousands of runs."""
    machines: list[weakref.ref[SimulatedMachine]] = []

    class Watched(SimulatedMachine):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]  # handed on
            machines.append(weakref.ref(self))

    monkeypatch.setattr("syncverify.backends.sim.SimulatedMachine", Watched)
    for _ in range(3):
        assert SimBackend().run(SCENARIO, resolve(name)).fault is None
    gc.collect()
    assert len(machines) >= 3  # a run may make more than one
    assert [machine for machine in machines if machine() is not None] == []


def test_the_simulated_backend_is_known_for_the_length_of_a_run() -> None:
    name = machine_module.BACKEND_NAME.upper()
    seen: list[bool] = []
    SimulatedMachine(1).run(lambda _: seen.append(name in dist.Backend._plugins))
    assert seen == [True]
    assert name not in dist.Backend._plugins
