"""Public defects of streams, of memory and of ranks that differ, and what stands for each.

Names of entries are those of docs/known-defects.md; the others have no row there.
"""

from dataclasses import dataclass
from typing import Any

from planted import cross_rank, lifecycle, rank_divergence, side_memory, side_streams

from syncverify.bugbank.bases.main_grads import MainGrads
from syncverify.bugbank.bases.view_buckets import ViewBuckets

SideStreams = side_streams.SideStreams


@dataclass(frozen=True)
class Entry:
    """A public defect.

    Attributes:
        name: What it is called.
        source: Where it was reported.
        defect: The synchronizer that has it.
        twin: The one that does not, from which the defect is derived.
    """

    name: str
    source: str
    defect: type[Any]
    twin: type[Any]


STREAMS = [
    Entry(
        "wait-only-last-hook-stream", "deepspeedai/DeepSpeed#8061",
        side_streams.WaitsForLastPacker, side_streams.PacksOnTwoStreams,
    ),
    Entry(
        "hook-runs-on-init-stream", "NVIDIA/Megatron-LM#3670",
        side_streams.ForksFromDefaultStream, side_streams.AccumulatesWhereBound,
    ),
    Entry(
        "finalize-on-default-stream", "pytorch/pytorch#37790",
        side_streams.JoinsDefaultStream, side_streams.AveragesAside,
    ),
    Entry(
        "comm-stream-not-after-producer", "hpcaitech/ColossalAI#4404",
        side_streams.NeverForks, SideStreams,
    ),
    Entry(
        "pingpong-buffer-reused-early", "deepspeedai/DeepSpeed#3727",
        side_memory.RefillsStagingEarly, side_memory.TwoStagingBuffers,
    ),
    Entry(
        "missing-record-stream", "deepspeedai/DeepSpeed#7965",
        side_memory.DropsCopy, side_memory.ReducesCopy,
    ),
    Entry(
        "allocated-on-wrong-stream", "NVIDIA/Megatron-LM#6187",
        side_memory.AllocatesOnCallersStream, side_memory.ReplacesBuffers,
    ),
    Entry(
        "freed-before-post-reduce-copy", "pytorch/pytorch#180665",
        side_memory.FreesResultEarly, side_memory.CopiesResultAside,
    ),
    Entry(
        "freed-before-post-reduce-copy", "pytorch/pytorch#160481",
        side_streams.RecordsFirstLeg, side_streams.ReducesLegsOnTwoStreams,
    ),
    Entry(
        "final-join-missing", "pytorch/pytorch#144535",
        side_streams.NeverJoins, SideStreams,
    ),
    Entry(
        "work-handle-empty", "pytorch/pytorch#122849",
        side_streams.LosesHandles, SideStreams,
    ),
    Entry(
        "work-handle-empty", "pytorch/pytorch#122807",
        lifecycle.NeverWaits, ViewBuckets,
    ),
    Entry(
        "reentrant-overwrites-in-flight", "facebookresearch/fairscale#780",
        side_streams.LaunchesOnFirstGradient, SideStreams,
    ),
    Entry(
        "zero-grad-while-in-flight", "horovod/horovod#1116",
        side_streams.ZeroesWhatIsRead, side_streams.MeasuresNorm,
    ),
    Entry(
        "future-done-at-enqueue", "NERSC/sc24-dl-tutorial#1",
        side_memory.CopiesBackOnEnqueue, side_memory.HoldsCopies,
    ),
    Entry(
        "third-stream-stash", "pytorch/pytorch#188655",
        side_memory.ReleasesBeforeJoin, side_memory.HoldsCopies,
    ),
    Entry(
        "drain-by-assumed-last-hook", "ROCm/pytorch#3500",
        side_streams.DrainsInOneHook, SideStreams,
    ),
    Entry(
        "wait-at-entry-too-late", "pytorch/pytorch#181218",
        side_streams.JoinsAtNextEntry, SideStreams,
    ),
    Entry(
        "async-result-read-before-wait", "pytorch/pytorch#115710",
        side_streams.KeepsAnswerTooEarly, side_streams.AgreesOnOverflow,
    ),
]  # fmt: skip
MEMORY = [
    Entry(
        "ref-cycle-keeps-buckets", "pytorch/pytorch#63211",
        lifecycle.KeepsHooks, ViewBuckets,
    ),
    Entry(
        "record-stream-overallocation", "pytorch/pytorch#147168",
        side_memory.RecordsEachCopy, side_memory.HoldsUntilJoined,
    ),
    Entry(
        "old-buckets-kept-by-grads", "pytorch/pytorch#41954",
        side_memory.LeavesBuffersBehind, SideStreams,
    ),
]  # fmt: skip
RANKS = [
    Entry(
        "set-iteration-order", "NVIDIA/Megatron-LM#2218",
        cross_rank.ReducesInRankOrder, MainGrads,
    ),
    Entry(
        "rank-divergent-used-params", "pytorch/pytorch#158719",
        rank_divergence.ReducesUsedParameters, rank_divergence.ReducesEachParameter,
    ),
    Entry(
        "cross-group-collective-order", "meta-pytorch/torchrec#4149",
        cross_rank.TakesAxesInTurn, MainGrads,
    ),
    Entry(
        "cross-group-collective-order", "NVIDIA/nccl#195",
        cross_rank.ChecksInTurn, cross_rank.ChecksAtTheEnd,
    ),
    Entry(
        "cross-group-collective-order", "NVIDIA/Megatron-LM#107",
        rank_divergence.SwapsBuckets, rank_divergence.ReducesInWait,
    ),
    Entry(
        "size-mismatch-does-not-hang", "NVIDIA/nccl#1417",
        cross_rank.CutsByAllBytes, MainGrads,
    ),
    Entry(
        "bucket-order-partly-broadcast", "pytorch/pytorch#35137",
        rank_divergence.CutsAtItsOwnCap, ViewBuckets,
    ),
    Entry(
        "hook-vs-other-collective", "pytorch/pytorch#72843",
        rank_divergence.CountsAfterwardsAsWell, rank_divergence.CountsFirst,
    ),
    Entry(
        "rank-local-skip", "facebookresearch/fairscale#754",
        rank_divergence.SkipsBucketsByItself, rank_divergence.ReducesInWait,
    ),
]  # fmt: skip
CATALOGUE = [*STREAMS, *MEMORY, *RANKS]
