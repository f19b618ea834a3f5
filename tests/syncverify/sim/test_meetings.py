from syncverify.sim.collectives import Call
from syncverify.sim.machine import SimulatedMachine

CALL = Call("barrier", "", [], [])


def test_the_same_place_is_one_meeting_and_has_one_name_in_every_run() -> None:
    world = SimulatedMachine(4).world
    meeting = world.meet(("dp", (1, 3), 2))
    assert world.meet(("dp", (1, 3), 2)) is meeting
    assert meeting.ranks == (1, 3)
    assert meeting.name == "meeting 2 of dp, (1, 3)"
    for other in (("tp", (1, 3), 2), ("dp", (3, 1), 2), ("dp", (1, 3), 3)):
        assert world.meet(other) is not meeting


def test_a_meeting_is_complete_when_nobody_is_missing() -> None:
    meeting = SimulatedMachine(4).world.meet(("dp", (1, 3), 0))
    assert meeting.missing_ranks() == (1, 3)
    meeting.calls[0] = CALL
    assert meeting.missing_ranks() == (3,)
    assert not meeting.is_complete
    meeting.calls[1] = CALL
    assert meeting.missing_ranks() == ()
    assert meeting.is_complete
