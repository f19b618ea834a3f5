"""Parts of a scenario, the smallest first.

`simpler_scenarios` goes down from a scenario: each simpler one that still fails is a step.
Where a failing run takes seconds, a search goes up instead: parts that hold cost little, and
the first one that fails is the last one that is played.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from syncverify.errors import ScenarioFormatError
from syncverify.playing.program.modules.named import require_own_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN, TABLE
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.search.simpler_scenarios import Changes, one_axis

_PLAIN_WORDS: Final[Changes] = {
    name: topic.plain_word
    for name, topic in TABLE.items()
    if topic.fits_any and topic.part == "scenario" and name != "event"
}


def parts_of(scenario: Scenario, capabilities: Capabilities) -> Iterator[Scenario]:
    """Yield the parts of a scenario within a contract, those with the fewest things first.

    A part has the whole mesh or one axis, all parameters or one, all steps or one, all
    micro-batches or one, and the words of the scenario or plain ones.
    """
    ways = [
        [*_axes(scenario), {}],
        [*({"parameters": (spec,)} for spec in scenario.parameters), {}],
        [*_steps(scenario), {}],
        [_PLAIN_WORDS, {}],
    ]
    yielded = {scenario}
    for places in sorted(
        itertools.product(*(range(len(way)) for way in ways)), key=sum
    ):
        changes = [way[place] for way, place in zip(ways, places, strict=True)]
        with contextlib.suppress(ScenarioFormatError):  # such as: no parameter trains
            part = _changed(scenario, changes)
            if part not in yielded and not features_outside(part, capabilities):
                yielded.add(part)
                yield part


def _axes(scenario: Scenario) -> Iterator[Changes]:
    """Yield the mesh with one axis: of one rank, of two, and as it is."""
    axes = range(len(scenario.mesh.shape))
    for size in (1, 2, None):
        for axis in axes:
            most = scenario.mesh.shape[axis]
            yield {"axis": (axis, most if size is None else min(size, most))}


def _steps(scenario: Scenario) -> Iterator[Changes]:
    """Yield one step with one micro-batch, without and with an event; then each step as it is.

    The last one has all steps, each with one micro-batch.
    """
    events = scenario.events or (PLAIN,) * scenario.num_steps
    yield {"accumulations": (1,), "events": ()}
    for each in sorted({*events} - {PLAIN}):
        yield {"accumulations": (1,), "events": (each,)}
    for count, event in zip(scenario.accumulations, events, strict=True):
        yield {
            "accumulations": (count,),
            "events": () if event == PLAIN else (event,),
        }
    yield {"accumulations": (1,) * scenario.num_steps}


def _changed(scenario: Scenario, changes: list[Changes]) -> Scenario:
    """Return the scenario with changes of the mesh, the parameters, the steps, the words.

    Raises:
        ScenarioFormatError: It is no scenario.
    """
    mesh, parameters, *others = changes
    chosen = replace(scenario, **parameters)
    # The mesh decides about the placements of the parameters that are left.
    placed = one_axis(chosen, *mesh["axis"]) if mesh else {}
    part = replace(
        chosen, **placed, **{k: v for each in others for k, v in each.items()}
    )
    if part.module != PLAIN:
        require_own_parameters(part)
    return part
