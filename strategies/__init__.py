"""Hypothesis strategies for distributed training scenarios.

    from hypothesis import given

    from syncverify.strategies import scenarios

    @given(scenarios(max_ranks=2))
    def test_local_shards_cover_the_parameter(scenario): ...

=========================== ============================================================
strategy                    draws
=========================== ============================================================
`scenarios`                 whole scenarios: all of the following, combined
`meshes`                    device meshes
`parameters`                one parameter
`parameter_lists`           parameters `p0`, `p1`, ...
`shapes`, `placements`      shape and placements of one parameter
`used_by`                   the ranks and micro-batches whose losses use a parameter
`uses`                      the operators through which a loss uses a parameter
`modules`                   the name of a `torch.nn` module that the scenario trains
`module_parameter_lists`    the parameters of such a module
`accumulations`             the number of micro-batches of each step
`bucket_caps`               bucket caps in bytes
`backwards`                 the way in which backward runs
`caller_streams`            the streams on which the training program works
`readiness_orders`          the order in which gradients become ready
`step_events`               changes to single steps, such as a second `wait()`
`schedules`                 the timing of a run on the `sim` backend
=========================== ============================================================

All strategies shrink toward a plain training step on one rank. They construct legal values
and filter none away, so Hypothesis discards no example. A `capabilities` argument restricts
a strategy to the contract of one subject.

Most functions that return a strategy cache it: Hypothesis validates each new strategy object,
which takes longer than one draw from it.
"""

if __name__ == "strategies":  # as it lies in a checkout
    raise ImportError(
        f"expected the name 'syncverify.{__name__}', got {__name__!r}, the folder of a "
        f"checkout at {__file__}; import syncverify.{__name__}"
    )

from syncverify.strategies.accumulations import accumulations
from syncverify.strategies.bucket_caps import bucket_caps
from syncverify.strategies.meshes import meshes
from syncverify.strategies.modules import module_parameter_lists, modules
from syncverify.strategies.parameters import parameter_lists, parameters
from syncverify.strategies.placements import placements
from syncverify.strategies.scenarios import scenarios
from syncverify.strategies.schedules import schedules
from syncverify.strategies.shapes import shapes
from syncverify.strategies.training_programs import (
    backwards,
    caller_streams,
    readiness_orders,
    step_events,
    used_by,
    uses,
)

__all__ = [
    "accumulations", "backwards", "bucket_caps", "caller_streams", "meshes",
    "module_parameter_lists", "modules", "parameter_lists", "parameters", "placements",
    "readiness_orders", "scenarios", "schedules", "shapes", "step_events", "used_by",
    "uses",
]  # fmt: skip
