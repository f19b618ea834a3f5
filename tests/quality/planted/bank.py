"""Defects of the bug bank that searches meet, and the report that each has to get."""

from dataclasses import dataclass
from typing import Any

from syncverify.bugbank.catalogue import entry_of
from tests.quality.planted.planted import VALUE

LIVE = "every_rank_finishes"
WAITS = "every_wait_completes"
MATCH = "collectives_match_across_ranks"
ORDER = "launch_order_agrees"
EXCLUSIVE = "bucket_is_exclusive_while_reducing"
READ = "wait_orders_reads_after_reduce"
AGREE = "replicas_agree"
LOCAL = "unreduced_stay_local"
ACCUMULATE = "accumulation_is_local_until_reduced"
ZERO = "zero_grad_clears"
ONCE = "each_bucket_reduced_once_per_step"
UNBIND = "unbind_restores_parameters"


@dataclass(frozen=True)
class BankDefect:
    """A defect of the bug bank, and what tests expect of it.

    Attributes:
        entry_id: Id of the entry in the bank, as in `syncverify bank`.
    """

    entry_id: str

    @property
    def subject(self) -> type[Any]:
        """Return the synchronizer with the defect."""
        return entry_of(self.entry_id).subject

    @property
    def twin(self) -> type[Any]:
        """Return the same synchronizer without the defect."""
        return entry_of(self.entry_id).twin


@dataclass(frozen=True)
class Defect(BankDefect):
    """A defect that searches meet.

    Attributes:
        property: The property it violates before all others, in the smallest scenario.
        cause: Cause of the violation.
        says: Part of the one sentence that explains it. `{name}` and `{numel}` stand for the
            name and the size of the only parameter, where shrinking may leave any.
        also: Other properties that it violates, in some scenario of the search.
        mesh: Mesh of the smallest scenario.
        num_parameters: Number of its parameters, at most.
        accumulations: Micro-batches of each step. The smallest scenario has at most as many
            steps, and at most as many micro-batches in all steps together.
        examples: Number of scenarios that the search draws.
        features: Features of the smallest scenario, beyond plain steps.
        seed: Seed of the search's drawing.
    """

    property: str
    cause: str
    says: str
    also: frozenset[str] = frozenset()
    mesh: tuple[int, ...] = (2,)
    num_parameters: int = 1
    accumulations: tuple[int, ...] = (1,)
    examples: int = 20
    features: frozenset[str] = frozenset()
    seed: int = 0


def wrong(explanation: str, *, step: int = 0) -> str:
    """Return the sentence about a wrong gradient of the parameter `p0`."""
    return f"gradient of 'p0' on rank 0, step {step} is wrong: {explanation}"


UNREDUCED = "it is rank 0's own gradient, and no collective of the step sent it: "
NUMERICS = [
    Defect(
        "avg-divides-by-numel", VALUE, "scaled",
        "gradient of '{name}' on rank 0, step 0 is wrong: its sum is divided by {numel}, the "
        "number of elements, not by 2",
    ),
    Defect(
        "expert-divisor-wrong-mesh", VALUE, "scaled",
        wrong(
            "it is divided by 2, the number of ranks that contribute, once more: its sum by "
            "4 and not by 2"
        ),
        mesh=(2, 2), examples=40,
    ),
    Defect(
        "dp-group-ignores-sequence-parallel", VALUE, "rank_contribution_missing",
        wrong(
            "the contributions of ranks 1, 3 are missing; "
            "as if it were reduced over mesh axes ['dp'] only"
        ),
        also=frozenset({AGREE}), mesh=(2, 2),
    ),
    Defect(
        "replicated-param-not-summed-on-tp", VALUE, "not_reduced", wrong(UNREDUCED),
        also=frozenset({AGREE, ONCE}),
    ),
    Defect(
        "default-group-for-no-group", MATCH, "foreign_contribution",
        "ranks [0, 1] met in one collective and disagree: no axis reduces {name} over these ranks",
        also=frozenset({LOCAL}),
    ),
    Defect(
        "size1-group-self-add", LOCAL, "scaled",
        wrong("it is counted twice as a whole"), mesh=(1,),
    ),
    Defect(
        "low-precision-accumulator", VALUE, "rounded",
        wrong("it is rounded, as if summed in "), also=frozenset({LOCAL}),
        # With seed 0 it is met on three ranks, in a seventh parameter whose sums on two ranks
        # are exact.
        features=frozenset({"dtype=own gradient dtype"}), seed=1,
    ),
    Defect(
        # With seed 0 it is met among 51 parameters, of which too many are left.
        "reduce-dtype-skips-second-leg", VALUE, "rounded",
        wrong("it is rounded, as if summed in "), mesh=(2, 2), examples=30, seed=1,
    ),
    Defect(
        "flush-reduces-what-is-reduced", VALUE, "reduced_twice",
        wrong("ranks [0, 1] summed their sum again: it was reduced at "),
        also=frozenset({ONCE}),
    ),
    Defect(
        "scale-accumulated-grad-each-window", VALUE, "scaled",
        wrong(
            "it is divided by 2, the number of ranks that contribute, "
            "in every micro-batch"
        ),
        accumulations=(3,),  # with two ranks and two micro-batches, 2 may be either
    ),
]  # fmt: skip
LIFECYCLE = [
    Defect(
        "sync-first-instead-of-last", ACCUMULATE, "reduced_early",
        "rank 0 reduced in micro-batch 0 of 2 (step 0): all_reduce SUM of 1 x float32",
        also=frozenset({VALUE, EXCLUSIVE}), accumulations=(2,),
    ),
    Defect(
        "no-sync-around-backward-only", ACCUMULATE, "reduced_early",
        "rank 0 reduced in micro-batch 0 of 2 (step 0): all_reduce SUM of 1 x float32",
        also=frozenset({ONCE}), accumulations=(2,),
    ),
    Defect(
        "nested-wrapper-still-syncs", ONCE, "reduced_twice",
        "rank 0 reduced the same memory twice in step 0",
    ),
    Defect(
        "ready-count-learned-once", ACCUMULATE, "reduced_early",
        "rank 0 reduced in micro-batch 0 of 2 (step 1): all_reduce SUM of 1 x float32",
        also=frozenset({AGREE, VALUE, ONCE, EXCLUSIVE}), accumulations=(1, 2),
    ),
    Defect(
        "accumulator-reset-each-backward", VALUE, "micro_batch_missing",
        wrong("micro-batches [0] of 2 are missing on every rank"),
        also=frozenset({LOCAL}), accumulations=(2,),
    ),
    Defect(
        "micro-step-off-by-one-first-window", VALUE, "micro_batch_missing",
        wrong("micro-batches [0] of 2 are missing on every rank", step=1),
        also=frozenset({LOCAL}), accumulations=(1, 2),
    ),
    Defect(
        "set-to-none-breaks-view", VALUE, "view_lost",
        wrong(
            "it is rank 0's own gradient: `.grad` does not lie in the memory that is "
            "reduced at ", step=1,
        ), also=frozenset({AGREE}), accumulations=(1, 1),
    ),
    Defect(
        "buffer-borrowed-not-zeroed", ZERO, "gradient_left",
        "gradient of 'p0' on rank 0 is not zero after zero_grad() of step 0",
        also=frozenset({VALUE, ACCUMULATE}),
    ),
    Defect(
        "view-rebound-to-hook-output", VALUE, "stale",
        wrong("it is the reduced gradient of step 0, reduced again", step=1),
        also=frozenset({LOCAL}), accumulations=(1, 1),
    ),
    Defect(
        "work-handle-empty", READ, "read_before_reduced",
        "rank 0: nothing orders all_reduce at ", also=frozenset({AGREE, VALUE}),
    ),
    Defect(
        "hooks-kept-after-unbind", UNBIND, "hook_left",
        "1 hook is left on 'p0' of rank 0 after unbind()", mesh=(1,),
    ),
]  # fmt: skip
LAYOUT = [
    Defect(
        "frozen-param-blocks-bucket", VALUE, "not_reduced",
        wrong(UNREDUCED), also=frozenset({AGREE, ONCE}), num_parameters=2,
    ),
    Defect(
        "last-bucket-not-flushed", VALUE, "not_reduced", wrong(UNREDUCED),
        also=frozenset({AGREE, ONCE}),
    ),
    Defect(
        "placeholder-bucket-reduced", LIVE, "raised_IndexError",
        "rank 0 raised IndexError in step 0, bind: list index out of range", mesh=(1,),
    ),
    Defect(
        "bucket-not-padded-to-group", VALUE, "not_reduced",
        wrong(UNREDUCED), also=frozenset({AGREE, ONCE}),
    ),
]  # fmt: skip
CROSS_RANK = [
    Defect(
        "set-iteration-order", MATCH, "collective_mismatch",
        "ranks [0, 1] met in one collective and disagree",
        also=frozenset({VALUE, AGREE}), num_parameters=2, examples=40,
        seed=3,
    ),
    Defect(
        # It takes an uneven shard, two replicated parameters of one dtype and a cap
        # between them. With this seed, 60 scenarios have one with all of that.
        "size-mismatch-does-not-hang", MATCH, "collective_mismatch",
        "ranks [0, 1] met in one collective and disagree", num_parameters=3,
        examples=60, seed=5,
    ),
    Defect(
        "cross-group-collective-order", WAITS, "deadlock",
        "no rank can go on: ranks 0, 1, 2, 3 never arrive", mesh=(2, 2),
    ),
    Defect(
        "two-communicators-unordered", ORDER, "deadlock_hazard",
        "ranks [0, 1] launch collectives in orders that exclude each other: a deadlock "
        "hazard on NCCL", examples=5,
    ),
]  # fmt: skip
DEFECTS = [*NUMERICS, *LIFECYCLE, *LAYOUT, *CROSS_RANK]
