"""The announcement of a scenario to the owner of the command, before it is played."""

from syncverify.processes.owner_link import Starts, tell_owner
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule


def announce(scenario: Scenario, schedule: Schedule = DEFAULT_SCHEDULE) -> None:
    """Tell the owner which scenario starts, in case this process does not survive it."""
    tell_owner(lambda: Starts(token_of_a_death(scenario, schedule)))


def token_of_a_death(scenario: Scenario, schedule: Schedule = DEFAULT_SCHEDULE) -> str:
    """Return the token of a scenario in which a process was lost."""
    lost = Reproducer("every_rank_finishes", "process_died", scenario, schedule)
    return encode(lost)
