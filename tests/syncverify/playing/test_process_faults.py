"""Rank processes that die or fall silent: a verdict on the right rank, and on no other.

The tests play the part of the workers; a real worker takes seconds to import torch.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    SubjectError,
    UsageError,
)
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.messages import JobOutcome, JobStarted, OfJob, Status, pack
from syncverify.playing.workers import WorkerGathering
from syncverify.processes.process_state import Work
from syncverify.processes.supervised import HungUp
from syncverify.processes.wire import Wire
from syncverify.subjects.subject import resolve
from syncverify.trace.run import Fault, RankRun, Run
from syncverify.trace.source_lines import CodeLine
from tests.programs import one_parameter
from tests.syncverify.playing.answers import ENDED, LINE, RAISED, WAITS

PAIR = one_parameter(2, "w", (5,))
WINDOW_SECONDS = 0.01
JOB = 2
NO_CONNECTION = JobOutcome(
    pack(RankRun()), is_aftershock=True, harness_error="in gloo\nno full mesh\n"
)
BLOCK = CodeLine(LINE._replace(number=8), "")


@dataclass(eq=False)
class Part:
    """The part of one worker: its messages, and the kernel's view of it."""

    sends: tuple[object, ...] = (JobStarted(),)
    num_jobs: int = 1
    end: str = ""
    stopped: bool = False
    hangs_at: CodeLine = BLOCK
    answer: Status | None = None
    pid: None = None
    seconds_per_window: float = 0.0
    of_descendants: bool = False
    used_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        parents, workers = socket.socketpair()
        self.parent, self.worker = Wire(parents.detach()), Wire(workers.detach())
        for message in self.sends:
            is_late = isinstance(message, OfJob)
            self.worker.send(message if is_late else OfJob(JOB, message))
        if self.end:
            self.worker.close()

    def fileno(self) -> int:
        return self.parent.fileno()

    def hear(self) -> list[Any]:
        try:
            return self.parent.hear()
        except EOFError:
            return [HungUp()]

    def send(self, _message: object) -> None:
        if self.answer is not None:
            self.worker.send(OfJob(JOB, self.answer))

    def is_stopped(self) -> bool:
        return self.stopped

    def why_silent(self) -> str:
        in_words = {True: "a signal has stopped it", False: "the GIL is taken"}
        return f"does not answer: {in_words[self.stopped]}"

    def stacks(self) -> str:
        path, number, function = self.hangs_at.line
        return "" if self.stopped else f'  File "{path}", line {number} in {function}'

    def has_ended(self) -> bool:
        return bool(self.end)

    def exit_reason(self) -> str:
        return self.end

    def processor_seconds(self) -> float:
        return 0.0 if self.of_descendants else self._use()

    def work_of_descendants(self) -> Work:
        return Work(self._use()) if self.of_descendants else Work()

    def _use(self) -> float:
        self.used_seconds += self.seconds_per_window
        return self.used_seconds


def fine(num_jobs: int = 1) -> Part:
    return Part((JobStarted(), ENDED), num_jobs)


def waits_for_a_peer() -> Part:
    return Part(answer=WAITS)


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Play one scenario with the parts of ranks 0 and 1, in each attempt."""

    def play(*attempts: tuple[Part, Part], backend: GlooBackend | None = None) -> Run:
        opened = backend or GlooBackend()
        left = iter(attempts)

        def start(*_arguments: object) -> WorkerGathering:
            workers: Any = [*next(left)]
            return WorkerGathering(workers, WINDOW_SECONDS, job=JOB)

        monkeypatch.setattr(opened, "_start", start)
        monkeypatch.setattr(opened._pool, "discard", lambda _rank: None)
        return opened.run(PAIR, resolve("ddp"))

    return play


Play = Callable[..., Run]
STOPPED = "rank 1: does not answer: a signal has stopped it"
BLOCKED = "rank 1: does not answer: the GIL is taken"


def test_rank_that_keeps_the_gil_is_at_fault_and_not_its_peer(playing: Play) -> None:
    run = playing((waits_for_a_peer(), Part()))
    assert (run.fault.kind, run.fault.ranks) == ("never_returns", (1,))
    assert run.fault.details[:2] == (BLOCKED, BLOCK)
    assert run.fault.details[2].startswith("rank 0: stands after all_reduce SUM of 5")
    assert run.remarks == ()


def test_rank_that_hangs_elsewhere_in_the_second_run_has_the_same_fault(
    playing: Play,
) -> None:
    later = CodeLine(LINE._replace(number=9), "")
    hangs = [Part(num_jobs=2, hangs_at=line) for line in (BLOCK, later)]
    run = playing(*((waits_for_a_peer(), hang) for hang in hangs))
    assert (run.fault.kind, run.fault.ranks) == ("never_returns", (1,))
    assert run.fault.details[:2] == (BLOCKED, later)


def test_rank_that_works_while_its_peers_wait_has_time(playing: Play) -> None:
    """It does not answer for a while, but it uses processor time."""
    works = Part(seconds_per_window=WINDOW_SECONDS / 4)
    run = playing((waits_for_a_peer(), works))
    assert run.fault is not None
    assert works.used_seconds >= WINDOW_SECONDS


def test_rank_whose_child_works_while_its_peers_wait_has_time(playing: Play) -> None:
    """It is ended at last, as a rank that sleeps and wakes is."""
    builds = Part(seconds_per_window=WINDOW_SECONDS, of_descendants=True)
    run = playing((waits_for_a_peer(), builds))
    assert run.fault is not None
    assert builds.used_seconds > 10 * WINDOW_SECONDS


class RaisesLate(Part):
    """A part that a busy machine keeps from running, and that raises as its peer did."""

    def _use(self) -> float:
        used = super()._use()
        if used > 2 * self.seconds_per_window:
            fault = Fault("raised", (0,), "rank 0 raised")
            late = JobOutcome(pack(RankRun()), fault)
            self.worker.send(OfJob(JOB, late))
        return used


def test_the_first_of_the_ranks_that_raise_is_named_on_a_busy_machine(
    playing: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerGathering, "aftershock_seconds", WINDOW_SECONDS)
    late = RaisesLate(answer=WAITS, seconds_per_window=WINDOW_SECONDS / 5)
    fault = playing((late, Part((JobStarted(), RAISED)))).fault
    assert fault.ranks == (0,)
    # One that waits for the rank that raised is waited for no longer.
    fault = playing((waits_for_a_peer(), Part((JobStarted(), RAISED)))).fault
    assert fault == RAISED.fault


def test_messages_about_an_earlier_scenario_are_dropped(playing: Play) -> None:
    late = (OfJob(JOB - 1, RAISED), OfJob(JOB - 1, WAITS))
    run = playing((fine(), Part((JobStarted(), *late, ENDED))))
    assert (run.fault, run.remarks) == (None, ())
    run = playing((waits_for_a_peer(), Part((JobStarted(), *late))))
    assert (run.fault.kind, run.fault.ranks) == ("never_returns", (1,))


def test_no_rank_that_answers_is_a_fault_of_them_all(playing: Play) -> None:
    run = playing((Part(), Part()))
    assert (run.fault.kind, run.fault.ranks) == ("never_returns", (0, 1))


def test_stopped_rank_is_at_fault_if_it_stops_again_in_a_new_process(
    playing: Play,
) -> None:
    stopped = [(waits_for_a_peer(), Part(stopped=True)) for _ in range(2)]
    run = playing(*stopped)
    assert (run.fault.kind, run.fault.ranks) == ("never_returns", (1,))
    assert run.fault.details[0] == STOPPED
    assert run.remarks == ()


@pytest.mark.parametrize(
    ("lost", "end"),
    [
        ({"stopped": True}, "does not answer: a signal has stopped it"),
        ({"end": "signal 9"}, "ended by signal 9"),
        ({"end": "signal 11", "num_jobs": 2}, "ended by signal 11"),
        ({"sends": (), "end": "exit code 1"}, "ended by exit code 1"),
    ],
)
def test_scenario_that_ends_in_a_new_process_is_not_at_fault(
    playing: Play, lost: dict[str, Any], end: str
) -> None:
    run = playing((fine(), Part(**lost)), (fine(2), fine()))
    assert run.fault is None
    (remark,) = run.remarks
    assert remark == (
        f"the process of rank 1 {end}; played again in a new process, the scenario ended "
        "without that"
    )


@pytest.mark.parametrize("end", ["signal 9", "signal 15"])
def test_a_signal_from_outside_has_to_end_a_process_three_times(
    playing: Play, end: str
) -> None:
    def ended() -> tuple[Part, Part]:
        return fine(), Part(end=end)

    run = playing(ended(), ended(), (fine(), fine()))
    assert run.fault is None
    assert len(run.remarks) == 2
    run = playing(ended(), ended(), ended())
    assert (run.fault.kind, run.fault.ranks) == ("process_died", (1,))


@pytest.mark.long
@pytest.mark.parametrize("lost", [{"stopped": True}, {"end": "signal 9"}])
def test_groups_that_a_lost_peer_was_to_join_are_no_fault_of_ours(
    playing: Play, lost: dict[str, Any]
) -> None:
    run = playing((alone(), Part(**lost)), (fine(2), fine()))
    assert run.fault is None
    assert len(run.remarks) == 1


def alone() -> Part:
    """A rank that cannot connect to its peers."""
    return Part(sends=(JobStarted(), NO_CONNECTION))


def test_groups_that_a_busy_machine_does_not_connect_are_set_up_again(
    playing: Play,
) -> None:
    run = playing((alone(), fine()), (fine(), alone()), (fine(), fine()))
    assert (run.fault, run.remarks) == (None, ())


def test_groups_that_never_connect_are_no_verdict(playing: Play) -> None:
    with pytest.raises(InternalError) as caught:
        playing(*((alone(), fine()) for _ in range(3)))
    assert str(caught.value) == (
        "worker processes do not connect, 3 times in one scenario: rank 0: no full mesh"
    )


def test_a_connection_that_breaks_twice_is_no_fault_of_the_subject(
    playing: Play,
) -> None:
    def breaks() -> tuple[Part, Part]:
        return fine(), Part(sends=(JobStarted(), replace(RAISED, is_aftershock=True)))

    run = playing(breaks(), breaks(), (fine(2), fine(2)))
    assert run.fault is None
    for remark in run.remarks:
        assert remark.startswith("a connection of gloo broke, though no process was")
    assert len(run.remarks) == 2
    assert playing(breaks(), breaks(), breaks()).fault == RAISED.fault


def test_ranks_that_all_wait_are_no_fault_if_they_go_on_in_new_processes(
    playing: Play,
) -> None:
    """Bytes of gloo can get lost beside processes that are killed and use its ports again."""

    def wait() -> tuple[Part, Part]:
        return waits_for_a_peer(), waits_for_a_peer()

    run = playing(wait(), (fine(), fine()))
    assert run.fault is None
    (remark,) = run.remarks
    assert remark.startswith("no rank went on; played again in a new process")
    run = playing(wait(), wait())
    assert (run.fault.kind, run.fault.ranks) == ("deadlock", (0, 1))


def test_a_rank_outside_of_the_subject_is_no_fault_if_it_goes_on_in_a_new_process(
    playing: Play,
) -> None:
    """A new process imports modules of torch, which takes long on a busy machine."""

    def imports(*lines: str) -> tuple[Part, Part]:
        return Part(answer=Status(0, lines, in_torch=False, launches=())), fine()

    run = playing(imports(), (fine(), fine()))
    assert run.fault is None
    (remark,) = run.remarks
    assert remark.startswith(
        "rank 0 made no progress and was ended, in no line of the subject; played again"
    )
    for again in playing(imports(), imports()), playing(imports(BLOCK)):
        assert (again.fault.kind, again.fault.ranks) == ("never_returns", (0,))


def test_a_fault_explains_why_a_peer_could_not_connect(playing: Play) -> None:
    run = playing((alone(), Part(sends=(JobStarted(), RAISED))))
    assert (run.fault, run.remarks) == (RAISED.fault, ())


@pytest.mark.parametrize("end", ["signal 11", "exit code 0"])
def test_new_process_that_dies_in_the_scenario_needs_no_second_run(
    playing: Play, end: str
) -> None:
    run = playing((fine(), Part(end=end)))
    assert (run.fault.kind, run.fault.ranks) == ("process_died", (1,))
    assert run.fault.details == (f"rank 1: ended by {end}",)


def test_processes_that_end_before_they_take_a_scenario_are_no_verdict(
    playing: Play,
) -> None:
    with pytest.raises(InternalError) as caught:
        playing(*((fine(), Part((), end="signal 9")) for _ in range(3)))
    assert str(caught.value).startswith(
        "worker processes end by themselves, 3 times in one scenario: the process of rank "
        "1 ended by signal 9;"
    )


def test_processes_that_end_again_and_again_are_no_verdict(playing: Play) -> None:
    backend = GlooBackend()
    for _ in range(2):
        playing((fine(), Part(end="signal 9")), (fine(), fine()), backend=backend)
    with pytest.raises(InternalError) as caught:
        playing((fine(), Part(end="signal 9")), (fine(), fine()), backend=backend)
    assert str(caught.value).startswith(
        "worker processes end by themselves, 3 times so far; something outside of this "
        "command ends them, or the subject leaves threads behind that do: the process of "
    )


def test_a_fault_explains_the_ends_of_processes_before_it(playing: Play) -> None:
    """Ranks that disagree abort a process of gloo or not, as their timing has it."""
    backend = GlooBackend()
    for _ in range(4):  # more than the ends that are borne without an explanation
        run = playing(
            (fine(), Part(end="signal 6", num_jobs=2)),
            (fine(), Part((JobStarted(), RAISED))),
            backend=backend,
        )
        assert (run.fault.kind, run.fault.ranks) == ("raised", (1,))
        assert run.remarks == ()


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (JobOutcome(refusal="no graphs"), EnvironmentNotSupportedError("no graphs")),
        (JobOutcome(usage_error="lacks bind()"), SubjectError("lacks bind()")),
    ],
)
def test_a_scenario_that_cannot_be_played_raises_the_class_of_a_single_process(
    playing: Play, outcome: JobOutcome, expected: UsageError
) -> None:
    """A peer that then finds no connection is no cause."""
    peer = Part((JobStarted(), NO_CONNECTION))
    with pytest.raises(UsageError) as caught:
        playing((peer, Part((JobStarted(), outcome))))
    assert (type(caught.value), str(caught.value)) == (type(expected), str(expected))
