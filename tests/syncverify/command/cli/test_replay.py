"""`replay` plays a token as the search did."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify.scenario.replay_token import Reproducer, encode
from tests.programs import one_parameter

CHANGES = '''
import torch.distributed as dist

from syncverify.synchronizer import GradientSynchronizer

num_made = 0


class Changes(GradientSynchronizer):
    """Has one more collective in each run of two ranks after the first."""

    def __init__(self, groups, bucket_size_mb, require_accumulations):
        global num_made
        super().__init__(groups, bucket_size_mb, require_accumulations)
        num_made += 1
        self.has_barrier = num_made > 2

    def wait(self):
        super().wait()
        if self.has_barrier:
            dist.barrier()
'''


@pytest.mark.slow
def test_replay_of_a_difference_between_two_runs_plays_two(
    call: Callable[..., Any],
) -> None:
    Path("changing.py").write_text(CHANGES)
    scenario = one_parameter(2, "p0", (4,))
    token = encode(Reproducer("subject_is_deterministic", "acts_otherwise", scenario))
    outcome = call("replay", token, "changing:Changes")
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.splitlines()[-1] == (
        "REPRODUCED: changing:Changes violates subject_is_deterministic "
        "(acts_otherwise) on sim"
    )
