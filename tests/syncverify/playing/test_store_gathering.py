"""Ranks on other machines: a lost rank is distinguished from ranks that wait for it."""

from typing import Any

import pytest
import torch.distributed as dist

from syncverify.errors import NoVerdictError
from syncverify.playing.messages import JobOutcome, SignOfLife, Status, pack
from syncverify.playing.torchrun_ranks import Helpers, RemoteRank, StoreGathering
from syncverify.processes.process_state import LocalProcess, Work
from syncverify.trace.run import Fault, RankRun
from syncverify.trace.source_lines import CodeLine, SourceLine
from tests.syncverify.playing.answers import ENDED, RAISED, WAITS

WINDOW_SECONDS = 0.01
FOREVER = float("inf")
AFTERSHOCK = JobOutcome(
    pack(RankRun()), Fault("raised", (0,), "rank 0 raised"), is_aftershock=True
)
LOOPS = Status(
    0,
    (CodeLine(SourceLine("mine.py", 9, "wait"), "while True"),),
    in_torch=False,
    launches=(),
)


class Job:
    """A job whose ranks write what a test says."""

    def __init__(self) -> None:
        self.store: Any = dist.HashStore()
        self.ranks = list[RemoteRank]()

    def rank(
        self,
        outcome: JobOutcome | None = None,
        status: Status | None = None,
        *,
        patience_seconds: float = FOREVER,
        end: int | None = None,
    ) -> None:
        rank = len(self.ranks)
        if outcome is not None:
            self.store.set(f"outcome/1/{rank}", pack(outcome))
        if status is not None:
            self.store.set(f"sign/{rank}", pack(SignOfLife(1, 1, status, 0.0, Work())))
        if end is not None:
            self.store.set(f"end/{rank}", str(end))
        machine = f"machine {rank}"
        self.ranks.append(RemoteRank(self.store, rank, machine, patience_seconds))

    def fault(self) -> Fault | None:
        gathering = StoreGathering(self.ranks, WINDOW_SECONDS, store=self.store, job=1)
        gathering.aftershock_seconds = WINDOW_SECONDS  # type: ignore[misc]  # for a test
        gathering.gather()
        return gathering.fault_or_loss("play TOKEN")


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_silent_rank_is_lost_and_not_blamed(job: Job) -> None:
    job.rank(status=WAITS)
    job.rank(status=WAITS, patience_seconds=0)
    with pytest.raises(NoVerdictError) as end:
        job.fault()
    first, silent, waiting, place = str(end.value).splitlines()
    assert first == "lost rank 1"
    assert silent.startswith("  rank 1: no sign of life for 0 s from machine 1: ")
    assert waiting.startswith("  rank 0: stands after all_reduce SUM of 5")
    assert place == "  in run 1; to play that one: play TOKEN"


def test_a_rank_that_said_its_exit_code_is_lost_at_once(job: Job) -> None:
    job.rank(ENDED)
    job.rank(status=WAITS, end=130)
    with pytest.raises(NoVerdictError, match=r"rank 1: exit code 130 on machine 1"):
        job.fault()


def test_an_exception_about_a_lost_rank_explains_nothing(job: Job) -> None:
    job.rank(AFTERSHOCK)
    job.rank(patience_seconds=0)
    with pytest.raises(NoVerdictError, match=r"lost rank 1\n"):
        job.fault()


def test_an_exception_of_a_rank_explains_silence(job: Job) -> None:
    job.rank(patience_seconds=0)
    job.rank(RAISED)
    assert job.fault() == RAISED.fault


def test_a_rank_that_lives_and_does_not_move_is_at_fault_and_not_its_peer(
    job: Job,
) -> None:
    job.rank(status=WAITS)
    job.rank(status=LOOPS)
    fault = job.fault()
    assert (fault.kind, fault.ranks) == ("never_returns", (1,))
    assert fault.details == LOOPS.lines


def test_the_signs_of_a_rank_tell_the_work_of_its_descendants(job: Job) -> None:
    helpers = Work(9.0, is_ready=True)
    sign = SignOfLife(1, 1, WAITS, 0.0, helpers)
    job.store.set("sign/0", pack(sign))
    rank = RemoteRank(job.store, 0, "machine 0", FOREVER)
    assert rank.work_of_descendants() == Work()
    rank.look()
    assert rank.work_of_descendants() == helpers


def test_a_rank_without_a_first_sign_is_silent_after_its_patience(job: Job) -> None:
    job.rank()
    job.rank(patience_seconds=0)
    assert [rank.look() is None for rank in job.ranks] == [False, True]


def test_descendants_are_looked_at_only_while_the_rank_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = Work(3.0, is_ready=True)
    works = iter([busy, Work(4.0)])
    monkeypatch.setattr(LocalProcess, "work_of_descendants", lambda _: next(works))
    helpers = Helpers()
    seen = [helpers.look(seconds) for seconds in (5.0, 5.01, 9.0, 9.02)]
    assert seen == [Work(), busy, busy, Work(4.0)]
