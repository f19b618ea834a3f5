"""The meshes and schedules on which d9d's trainer is run."""

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Layout:
    """A mesh of d9d's and a schedule of its pipeline.

    Attributes:
        name: Name in the results.
        axes: Sizes of the axes of the mesh, by the names that d9d gives them.
        schedule: d9d's name of the pipeline schedule, and its options. d9d asks for one
            without a pipeline too.
        max_norm: Norm to clip to; None for no clipping. Clipped gradients are rounded, so they are compared with
            those of d9d's synchronizer, and not with those of one process.
        sleeps: Whether the trainer sleeps and wakes after step 2, for which its synchronizer
            unbinds and binds.
    """

    name: str
    axes: dict[str, int]
    schedule: dict[str, Any] = field(default_factory=lambda: {"schedule": "gpipe"})
    max_norm: float | None = None
    sleeps: bool = False

    @property
    def num_ranks(self) -> int:
        """Size of the mesh."""
        return math.prod(self.axes.values())

    @property
    def data_parallel_size(self) -> int:
        """Number of ranks with data of their own; the ranks of a pipeline share theirs."""
        return self.num_ranks // self.axes.get("pipeline_parallel", 1)


REPLICATED = {"data_parallel_replicate": 2}
PIPELINE = {"pipeline_parallel": 2, "data_parallel_replicate": 2}

LAYOUTS = (
    Layout("replicated", REPLICATED),
    Layout("replicated, sleeps", REPLICATED, sleeps=True),
    Layout("replicated, clipped", REPLICATED, max_norm=1.0),
    Layout("sharded", {"data_parallel_shard": 2}),
    Layout("replicated and sharded", {**REPLICATED, "data_parallel_shard": 2}),
    Layout(
        "pipeline, two stages a rank",
        PIPELINE,
        {"schedule": "looped_bfs", "num_stages_per_rank": 2},
        sleeps=True,
    ),
    Layout(
        "pipeline, zero bubble",
        PIPELINE,
        {"schedule": "1f1b", "num_stages_per_rank": 2, "zero_bubble": True},
    ),
)
