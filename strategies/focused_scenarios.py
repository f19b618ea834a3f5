"""Scenarios of which most have a special value of one topic."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import BUCKET_CAP, is_in_focus
from syncverify.strategies.bucket_caps import bucket_edges, cap_within

# A scenario that is not in focus is drawn again, so often at most. Rejecting all of them would
# take a rare topic too long.
_MAX_DRAWS = 6


@st.composite
def focused_scenarios(
    draw: st.DrawFn,
    scenarios: st.SearchStrategy[Scenario],
    *,
    topic: str,
    capabilities: Capabilities,
) -> Scenario:
    """Generate scenarios that mostly have a special value of a topic; see `is_in_focus`.

    Shrinks as the scenarios do. With the topic `bucket_cap`, parameters fill a bucket to the
    byte, or nearly; see `bucket_caps_for`.

    Returns:
        A scenario.
    """
    for _ in range(_MAX_DRAWS):
        scenario = draw(scenarios)
        if topic == BUCKET_CAP:
            cap = draw(_edge_caps(scenario, capabilities))
            return replace(scenario, bucket_cap_bytes=cap)
        if is_in_focus(scenario, topic):
            break
    return scenario


def _edge_caps(
    scenario: Scenario, capabilities: Capabilities
) -> st.SearchStrategy[int]:
    mesh, parameters = scenario.mesh, scenario.parameters
    caps = {
        cap_within(cap, mesh, parameters, capabilities)
        for cap in bucket_edges(mesh, parameters, near_misses=True)
    }
    return st.sampled_from(sorted(caps, reverse=True))  # shrinks toward no split
