"""Synchronizers without a defect, on which the harness has to be silent."""

from typing import Any

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, MainGrads
from syncverify.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    Bucket,
    ViewBuckets,
)
from syncverify.bugbank.cross_rank import ChecksInTurn
from tests.quality.planted.divergence_bank import DIVERGENCES
from tests.quality.planted.side_memory import HoldsUntilJoined, RecordsEachCopy
from tests.quality.planted.stream_bank import TWINS


class ChecksAtTheEnd(ChecksInTurn):
    """Right: the check for overflow comes last, on all ranks."""

    def launch(self, bucket: Bucket) -> None:
        ViewBuckets.launch(self, bucket)

    def wait(self) -> None:
        ViewBuckets.wait(self)
        self.check()
        self.checks.pop().wait()


PLAIN: list[type[Any]] = [ViewBuckets, MainGrads, AveragedMainGrads]
# Twins of defects that have one fixed scenario each; they are played in fewer scenarios.
OF_FEW_SCENARIOS: list[type[Any]] = [
    *TWINS,
    AveragedViewBuckets,
    ChecksAtTheEnd,
    *dict.fromkeys(each.twin for each in DIVERGENCES if each.twin not in PLAIN),
    HoldsUntilJoined,
    RecordsEachCopy,  # costs memory, and is right
]
