"""The meeting of the ranks of a group in one collective: its name, and the missing ranks."""

from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.network.collectives import CollectiveCall

CALL = CollectiveCall("barrier", "", [], [])


def test_the_same_place_is_one_meeting_and_has_one_name_in_every_run() -> None:
    world = SimulatedMachine(4).world
    rendezvous = world.rendezvous(("dp", (1, 3), 2))
    assert world.rendezvous(("dp", (1, 3), 2)) is rendezvous
    assert rendezvous.ranks == (1, 3)
    assert rendezvous.name == "rendezvous 2 of dp, (1, 3)"
    for other in (("tp", (1, 3), 2), ("dp", (3, 1), 2), ("dp", (1, 3), 3)):
        assert world.rendezvous(other) is not rendezvous


def test_a_meeting_is_complete_when_nobody_is_missing() -> None:
    rendezvous = SimulatedMachine(4).world.rendezvous(("dp", (1, 3), 0))
    assert rendezvous.missing_ranks() == (1, 3)
    rendezvous.calls[0] = CALL
    assert rendezvous.missing_ranks() == (3,)
    assert not rendezvous.is_complete
    rendezvous.calls[1] = CALL
    assert rendezvous.missing_ranks() == ()
    assert rendezvous.is_complete
