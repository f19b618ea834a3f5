"""The line of a shell that plays a token again."""

import os
import shlex

# torchrun's own choice for a rendezvous. The port of the job that runs is taken.
_RENDEZVOUS_PORT = 29400


def replay_line(
    token: str, subject: str, backend: str = "sim", contract: str = ""
) -> str:
    """Return the command that plays a token, on each machine of a torchrun job.

    Subject, program and contract are as the user named them. The command takes `sim` by itself.
    """
    words = ["replay", token, shlex.quote(subject)]
    words += [] if backend == "sim" else ["--backend", backend]
    words += ["--contract", shlex.quote(contract)] if contract else []
    return " ".join([*_start(backend), *words])


def _start(backend: str) -> list[str]:
    """Return the words that start the command as the present job was started."""
    num_machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    # On one machine the command starts processes of its own, and replaces those it loses.
    starts_ranks = num_machines == 1 and not backend.startswith("nccl")
    if starts_ranks or "TORCHELASTIC_RUN_ID" not in os.environ:
        return ["syncverify"]
    words = [f"--nproc-per-node={os.environ['LOCAL_WORLD_SIZE']}"]
    if num_machines > 1:
        host = f"{os.environ['MASTER_ADDR']}:{_RENDEZVOUS_PORT}"
        words += [f"--nnodes={num_machines}", "--rdzv-backend=c10d"]
        words += [f"--rdzv-endpoint={host}"]
    return ["torchrun", *words, "-m", "syncverify"]
