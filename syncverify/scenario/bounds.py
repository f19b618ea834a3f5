"""Bounds of a scenario, of a world and of a file, each with its reason.

Tokens, reports and saved violations come from other people and machines. Every number in them
is compared with a bound before anything is allocated.
"""

from typing import Final

from syncverify.errors import UsageError

# Ranks by backend. A rank of `sim` is a thread; a rank of `streams` or `gloo` is a process of
# 250 MB.
# `fake` plays a few ranks for all, but keeps a list entry for each of the others.
MAX_RANKS: Final = {
    "sim": 512,
    "streams": 64,
    "gloo": 64,
    **dict.fromkeys(("nccl", "nccl2", "nccl-lazy", "nccl-legacy"), 65_536),
    "fake": 131_072,
}
MAX_RANKS_OF_ANY_BACKEND: Final = max(MAX_RANKS.values())
MAX_AXES: Final = 8  # strategies draw at most 3
MAX_DIMS: Final = 8  # strategies draw at most 5; torch refuses more than 64
# Strategies draw up to 8, and now and then 300; each costs milliseconds a step.
MAX_PARAMETERS: Final = 1024
# Elements of all parameters together: 32 MB in float64. Strategies draw up to 2**21.
MAX_ELEMENTS: Final = 2**22
MAX_MICRO_BATCHES: Final = 1024  # of all steps together
# Elements of all gradients that a run observes: 512 MB in float32.
MAX_OBSERVED_ELEMENTS: Final = 2**27
# Gradients that a run observes: each costs half a millisecond of a rank's time.
MAX_OBSERVED_GRADIENTS: Final = 2**17
MAX_BUCKET_CAP_BYTES: Final = 2**50  # subjects take it as a float of MiB
MAX_TIMES_LISTED: Final = 16
MAX_NAME_LENGTH: Final = 200
MAX_FILE_BYTES: Final = 2**26  # a report of 1,000 violations takes 10 MB
MAX_TOKEN_BYTES: Final = 2**20  # packed or unpacked: a token may be a zip bomb
# Processes that search side by side, and numbers that a command counts to.
MAX_JOBS: Final = 256
MAX_COUNT: Final = 10**9
MAX_SECONDS: Final = 7 * 24 * 3600  # clocks of threads overflow at 300 years


def check_ranks(backend: str, num_ranks: int) -> None:
    """Refuse a world of more ranks than a backend plays, by `UsageError`."""
    if num_ranks > MAX_RANKS[backend]:
        raise UsageError(
            f"expected ranks <= {MAX_RANKS[backend]} on {backend}, got {num_ranks}"
        )
