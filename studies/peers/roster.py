"""The peers: their backends and their known violations."""

from dataclasses import dataclass
from typing import Final

from syncverify.playing.choice import AnyBackend
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.sim import SimBackend
from syncverify.subjects.built_in import BUILT_INS
from syncverify.subjects.subject import Subject

# DeepSpeed takes long to make an engine, and sends the harness no message meanwhile.
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer.

    Attributes:
        package: Package of the synchronizer.
        known: Violations that docs/findings.md explains.
    """

    package: str = "torch"
    known: frozenset[str] = frozenset()

    def open(self, subject: Subject) -> AnyBackend:
        """Make the backend on which the peer runs; the caller closes it."""
        if subject.capabilities.needs_processes:
            return GlooBackend(hang_timeout_seconds=_PATIENCE_SECONDS)
        return SimBackend()


_KNOWN: Final = {
    "ddp-static-graph": {
        "every_rank_finishes (raised_RuntimeError)",
        "accumulation_is_local_until_reduced (reduced_early)",
    },
    "megatron-fsdp": {"every_rank_finishes (raised_RuntimeError)"},
    "deepspeed-zero2": {
        "gradient_equals_reference (rounded)",
        "unreduced_stay_local (rounded)",
    },
}
# All built-in subjects but ours; those of torch come first.
PEERS: Final = {
    name: Peer(each.package, known=frozenset(_KNOWN.get(name, ())))
    for name, each in sorted(
        BUILT_INS.items(), key=lambda item: (item[1].package != "torch", item[0])
    )
    if name != "synchronizer"
}
