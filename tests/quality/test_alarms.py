"""Programs about which the harness once cried wolf: a right synchronizer is right in them."""

from dataclasses import replace

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.properties import check
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import resolve

ALONE = MeshSpec((1,), ("dp",))
GRID = MeshSpec((2, 2), ("dp", "tp"))


def program(
    *parameters: ParameterSpec,
    accumulations: tuple[int, ...] = (1,),
    mesh: MeshSpec = ALONE,
    **words: object,
) -> Scenario:
    plain = Scenario(mesh, parameters, accumulations, 1 << 20)
    return replace(plain, **words)


def parameter(name: str = "p0", *, shape: tuple[int, ...] = (), **more: object):
    placements = more.pop("placements", ("R",))
    return replace(ParameterSpec(name, shape, placements), **more)


EMPTY = parameter(shape=(0,), placements=("S0",))
PROGRAMS = {
    # torch takes a view of a leaf to find its node; of an empty shard DTensor has none.
    "empty shard on a side stream": program(EMPTY, launch="step_on_side_stream"),
    "hooks of others on an empty shard": program(EMPTY, backward="hooks_of_others"),
    # Three quarters of an odd number that is added to a large one took a ninth bit.
    "halves of halves in bfloat16": program(
        parameter("p0", shape=(17,), dtype="bfloat16"),
        parameter("p1", shape=(17,), dtype="bfloat16", use="checkpointed_reentrant"),
        accumulations=(2,),
        backward="reentrant",
    ),
    # A group that no collective was issued on had no name when it was destroyed.
    "bound again for nothing": program(
        parameter(placements=("R", "R")),
        accumulations=(1, 1, 1),
        mesh=GRID,
        events=("plain", "plain", "rebind"),
    ),
}

OF_DDP = {
    # Autograd keeps the ones that it starts with for the stream that multiplies them.
    "gradients asked for beside": program(
        parameter(), launch="parameter_streams", backward="grad_beside"
    ),
}
PLAYED = [
    *(("synchronizer", scenario) for scenario in PROGRAMS.values()),
    *(("ddp", scenario) for scenario in OF_DDP.values()),
]


@pytest.mark.parametrize(("subject", "scenario"), PLAYED, ids=[*PROGRAMS, *OF_DDP])
def test_no_alarm(subject: str, scenario: Scenario) -> None:
    found = resolve(subject)
    run = SimBackend().run(scenario, found)
    assert run.fault is None
    assert check(scenario, run, found.capabilities) == []
