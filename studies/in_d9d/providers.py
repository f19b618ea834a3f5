"""The training job for d9d's trainer: what its user writes."""

from collections.abc import Callable, Iterator
from typing import Any

from d9d.core.dist_context import BATCH_DOMAIN, DENSE_DOMAIN, DistributedContext
from d9d.core.types import TensorSpec
from d9d.loop.config import TrainerConfig
from d9d.loop.control import (
    BuildForwardInputsResult,
    ComputeLossResult,
    InitializeModelStageResult,
    ModelProvider,
    TrainTask,
)
from d9d.loop.event.catalogue.train import (
    EVENT_TRAIN_OPTIMIZER_STEP_PRE,
    EVENT_TRAIN_STEP_POST,
)
from d9d.model_state.mapper.compose import ModelStateMapperParallel
from d9d.module.parallelism.api import parallelize_hsdp
from typing_extensions import override

from studies.in_d9d.model import (
    BATCH,
    DTYPE,
    NUM_LAYERS,
    STEPS,
    WIDTH,
    MicroBatch,
    Stage,
    pack,
)


class PipelinedStage(Stage):
    """A stage that says what it sends to the next one."""

    def stage_transfer_spec(self, pipeline_input: object, boundary: object) -> object:
        """Describe the tensor between two stages."""
        return TensorSpec(shape=(BATCH, WIDTH), dtype=DTYPE)


class Task(TrainTask):  # type: ignore[misc]  # untyped, or missing
    """Weighted losses; calls `after_step` with the number of each step."""

    def __init__(self, after_step: Callable[[int], None]) -> None:
        self._after_step = after_step

    @override
    def build_forward_inputs(self, ctx: Any) -> Any:
        batch: MicroBatch = ctx.batch
        return BuildForwardInputsResult(input=batch.inputs, shared=None, state=batch)

    @override
    def compute_loss(self, ctx: Any) -> Any:
        batch: MicroBatch = ctx.state
        return ComputeLossResult(
            loss=batch.loss(ctx.pipeline_results), loss_weight=batch.weight
        )

    @override
    def register_events(self, context: Any) -> None:
        def report(step: Any) -> None:
            self._after_step(step.schedule.current_step)

        context.event_bus.subscribe(EVENT_TRAIN_STEP_POST, report)


class Models(ModelProvider):  # type: ignore[misc]  # untyped, or missing
    """Makes the stages, shares them out, and calls `before_update` before each update."""

    def __init__(self, before_update: Callable[[list[Stage]], None]) -> None:
        self.stages: list[Stage] = []
        self._before_update = before_update

    @override
    def initialize_model_stage(self, context: Any) -> Any:
        each = NUM_LAYERS // context.stage.num_stages
        first = context.stage.current_stage * each
        self.stages.append(PipelinedStage(first, first + each))
        mapper = ModelStateMapperParallel([])
        return InitializeModelStageResult(model=self.stages[-1], state_mapper=mapper)

    @override
    def parallelize_model_stage(self, context: Any) -> None:
        axes = ("dp_replicate", "dp_cp_shard", "cp_replicate")
        parallelize_hsdp(
            context.model, context.dist_context.mesh_for(DENSE_DOMAIN)[axes]
        )

    @override
    def register_events(self, context: Any) -> None:
        context.event_bus.subscribe(
            EVENT_TRAIN_OPTIMIZER_STEP_PRE, lambda _: self._before_update(self.stages)
        )

    @override
    def dump_hparams(self) -> Any:
        return {}


class Packs:
    """The micro-batches of this rank, a pack of another length in each step."""

    def __init__(self, context: DistributedContext) -> None:
        self._replica = context.mesh_for(BATCH_DOMAIN)["dp"].get_local_rank()

    def __iter__(self) -> Iterator[list[MicroBatch]]:
        return (pack(step, self._replica) for step in range(len(STEPS)))

    @property
    def total_steps(self) -> int:
        """Number of packs."""
        return len(STEPS)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the job saves no checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take nothing."""


def trainer_config(
    folder: str, *, schedule: dict[str, Any], max_norm: float | None
) -> TrainerConfig:
    """Return the configuration of a job without checkpoints, profiles and trackers."""
    never = {"period_steps": "disable"}
    return TrainerConfig.model_validate(
        {
            "run": {"name": "in_d9d"},
            "logging": {"period_steps": 1, "tracker": {"provider": "null"}},
            "pipelining": {"schedule": schedule},
            "determinism": {"base_seed": 0},
            "gc": never,
            "checkpointing": {"save_dir": folder, **never},
            "gradient_clipping": {"max_norm": max_norm},
            # Small buckets, so that a step has several buckets.
            "gradient_manager": {"bucket_size_mb": 1, "grad_dtype": None},
        }
    )


class FixedRate:
    """A schedule of learning rates that leaves them as they are."""

    def step(self) -> None:
        """Do nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take nothing."""
