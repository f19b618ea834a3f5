"""The peers: their backends and their known violations."""

from dataclasses import dataclass
from typing import Final

from syncverify.backends.choice import AnyBackend
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.subjects.subject import Subject

# DeepSpeed takes long to make an engine, and sends the harness no message meanwhile.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer.

    Attributes:
        package: Package of the synchronizer.
        examples: Default number of scenarios.
        known: Violations that docs/findings.md explains.
    """

    package: str = "torch"
    examples: int = 200
    known: frozenset[str] = frozenset()

    def open(self, subject: Subject) -> AnyBackend:
        """Make the backend on which the peer runs; the caller closes it."""
        if subject.capabilities.needs_processes:
            return GlooBackend(hang_timeout_seconds=_PATIENCE_SECONDS)
        return SimBackend()


PEERS: Final = {
    "ddp": Peer(),
    "ddp-bucket-view": Peer(),
    "ddp-comm-hook": Peer(),
    "ddp-find-unused": Peer(),
    "ddp-static-graph": Peer(
        known=frozenset(
            {
                "every_rank_finishes (raised_RuntimeError)",
                "accumulation_is_local_until_reduced (reduced_early)",
            }
        )
    ),
    "replicate": Peer(),
    "replicate-fsdp": Peer(),
    "fsdp2": Peer(),
    "hsdp": Peer(),
    "d9d": Peer("d9d"),
    "fairscale": Peer("fairscale"),
    "megatron": Peer("megatron-core"),
    "megatron-fsdp": Peer(
        "megatron-fsdp", known=frozenset({"every_rank_finishes (raised_RuntimeError)"})
    ),
    "megatron-fsdp-whole": Peer("megatron-fsdp"),
    "megatron-shards": Peer("megatron-core"),
    "megatron-training": Peer("megatron-core"),
    "deepspeed-zero1": Peer("deepspeed"),
    "deepspeed-zero2": Peer(
        "deepspeed",
        known=frozenset(
            {
                "gradient_equals_reference (rounded)",
                "unreduced_stay_local (rounded)",
            }
        ),
    ),
}
