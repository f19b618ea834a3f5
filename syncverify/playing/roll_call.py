"""The roll call of a torchrun job: every rank is there, and all ranks run the same code.

Machines of one job may hold different checkouts. A verdict on two versions of a subject
would be about neither of them.
"""

import hashlib
import json
import os
import socket
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist

from syncverify.errors import EnvironmentNotSupportedError, NoVerdictError
from syncverify.scenario.settings import NCCL_NAMES
from syncverify.subjects.subject import Subject

# Between the first rank that is ready and the last one: an import of torch takes a minute on
# a busy machine.
PATIENCE_SECONDS = 120.0
_HOST = "host"
_BEGAN = "began"
Facts = Mapping[str, str]


def facts_about(subject: Subject) -> Facts:
    """Return the name of this machine, and the facts that have to be equal on all machines."""
    return {
        _HOST: socket.gethostname(),
        "syncverify": version("syncverify"),
        "torch": torch.__version__,
        "the subject": subject.name,
        "the subject's file": _source(subject),
    }


def call_roll(
    store: dist.Store,
    facts: Facts,
    *,
    rank: int,
    world_size: int,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Sequence[str]:
    """Wait until all ranks are there, compare their facts, and return the machine of each.

    Raises:
        NoVerdictError: A rank does not come, or the job is started again.
        EnvironmentNotSupportedError: Ranks differ. Only rank 0 and a rank that differs from
            it raise that.
    """
    # torchrun keeps the store when it starts all ranks again, with all that is written there.
    if store.check([_BEGAN]):
        raise NoVerdictError(
            "torchrun starts this job again, because a machine joined or left, and no second "
            "search is made; what the first found is above; use a fixed --nnodes"
        )
    keys = [f"roll/{each}" for each in range(world_size)]
    store.set(keys[rank], json.dumps(facts))
    try:
        store.wait(keys, timedelta(seconds=patience_seconds))
    except dist.DistStoreError:
        absent = [each for each, key in enumerate(keys) if not store.check([key])]
        raise NoVerdictError(
            f"expected {world_size} ranks, got no word of {absent} in "
            f"{patience_seconds:.0f} s; did their processes start?"
        ) from None
    store.set(_BEGAN, "")
    roll: list[Facts] = [json.loads(store.get(key)) for key in keys]
    first = roll[0]
    for other, facts in enumerate(roll):
        for topic in first:
            is_different = topic != _HOST and facts.get(topic) != first[topic]
            if is_different and rank in {0, other}:
                raise EnvironmentNotSupportedError(
                    f"expected {topic} to be equal on all ranks, got {first[topic]} on rank "
                    f"0 ({first[_HOST]}) and {facts.get(topic)} on rank {other} "
                    f"({facts[_HOST]}); install the same on all machines"
                )
    return [each[_HOST] for each in roll]


def _source(subject: Subject) -> str:
    """Name the file of a subject by a digest of its bytes; its path may differ."""
    module = sys.modules.get(getattr(subject.factory, "__module__", ""))
    path = Path(getattr(module, "__file__", None) or "")
    if not path.is_file():
        return "no file"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{path.name} of SHA-256 {digest[:12]}"


def own_device(
    transport: str, store: dist.Store, *, rank: int, world_size: int
) -> torch.device:
    """Return the device of this process: its GPU for NCCL, else the CPU.

    A process that sees one GPU uses that one, whatever its local rank: SLURM and other
    launchers show each process its own GPU alone. So all ranks compare the GPUs that they
    chose, in the store of the job.

    Raises:
        EnvironmentNotSupportedError: There is no GPU for this process, or two processes
            have the same one.
    """
    if transport not in NCCL_NAMES:
        return torch.device("cpu")
    local_rank, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    index = 0 if count == 1 else local_rank
    if index >= count:
        raise EnvironmentNotSupportedError(
            f"the {transport} backend needs one GPU per process: local rank {local_rank} of this "
            f"machine has none (it has {count}); lower --nproc-per-node"
        )
    # NCCL refuses a GPU that two ranks have much later. Each rank does so here.
    store.set(f"gpu/{rank}", str(torch.cuda.get_device_properties(index).uuid))
    ranks = defaultdict[str, list[int]](list)
    for other in range(world_size):
        ranks[store.get(f"gpu/{other}").decode()].append(other)
    for shared, users in ranks.items():
        if len(users) > 1:
            raise EnvironmentNotSupportedError(
                f"the {transport} backend needs one GPU per process: ranks {users} all have GPU "
                f"{shared}; lower --nproc-per-node, or show each process another GPU by "
                "CUDA_VISIBLE_DEVICES"
            )
    return torch.device("cuda", index)
