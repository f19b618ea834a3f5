"""The owner of a command: the process that decides how the command ends.

Note [Who owns the end of a command]
    Subjects run in the process that plays scenarios: they can exit it, crash it, stop it, or
    keep Python in it from running, and then no code there says anything, or says 0. So that
    process is a child. The owner stays small: it imports no torch, and forks the child
    before torch is there. The owner passes signals on, and hears on a pipe which scenario
    starts, that Python runs, and with which code the command ends. Exit codes count only
    when they were sent that way. A child that ends without a code, or falls silent, is lost:
    the scenario is played once more in a new child (Note [The second child starts early]),
    and a third time where anybody may have ended or stopped one of these two. Lost each time, the
    scenario is a violation; otherwise there is no verdict, and the exit code is 3.

    The child leads a process group, which ends with it: children of the subject too. The
    kernel ends the group if the owner is killed. Processes that leave the group, as daemons
    do, end with the owner (`processes/system.py`).
"""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

import click
import psutil

from syncverify.command import process_exit
from syncverify.command.child import DEFAULT_PATIENCE, Child, Patience
from syncverify.command.second_play import Plays
from syncverify.late_imports import quick_imports
from syncverify.plain_text import plain
from syncverify.processes.system import adopt_orphans, end_children
from syncverify.scenario.replay_token import renamed
from syncverify.trace.source_lines import CodeLine

_PROPERTIES = {
    "process_died": "every_rank_finishes",
    "never_returns": "every_wait_completes",
}

# Signals by which users and supervisors end processes.
_REQUESTS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
_NUMBERS = {2: "two", 3: "three"}
# Numbers of machines as an argument, which argparse lets a user shorten, and as PET_NNODES.
_OPTION = re.compile(r"--nn\w*[=\0](\d+):(\d+)\0")
_RANGE = re.compile(r"(\d+):(\d+)")

Record = Callable[[str, str, list[CodeLine], int], int]
ReplayLine = Callable[[str], str]


def after_imports(
    play: Callable[[], int], meanwhile: Callable[[], None] | None = None
) -> Callable[[], int]:
    """Return a function that imports the modules of a search, and then plays.

    No later collection looks at the objects of these modules, hundreds of thousands: each
    search ends with a collection, for the lines of finalizers. The subject is not there yet.
    `meanwhile` is called first, and starts work that goes on beside the imports.
    """

    def imported() -> int:
        if meanwhile is not None:
            meanwhile()
        with quick_imports():
            import syncverify.command.verification.reported_search  # noqa: F401  # all of a search
        gc.freeze()
        return play()

    return imported


def owned(
    play: Callable[[], int],
    again: Callable[[str], int] | None,
    replay_line: ReplayLine,
    record: Record | None = None,
    patience: Patience = DEFAULT_PATIENCE,
) -> int:
    """Play in a child process, and return the exit code.

    A test that calls the command line in its own process plays there: torch has threads by
    then, and threads do not survive a fork. A command that only imports torch has none.

    Args:
        play: Plays, and returns the exit code.
        again: Plays the scenario of a token in the same way; None if it needs more than
            the token, so that a lost process gives no verdict.
        replay_line: Returns the command that plays a token.
        record: Saves a violation that loses the process, from its token, its summary, the
            subject's lines and the number of scenarios that started. It runs in a child too.
        patience: How long the owner waits for its children.
    """
    refuse_jobs_that_start_again()
    context = click.get_current_context(silent=True)
    is_command = context is not None and context.obj is process_exit.WHOLE_PROCESS
    may_have_threads = "torch" in sys.modules and not is_command
    if may_have_threads or not hasattr(os, "fork"):
        return play()
    owner = os.getpid()
    adopt_orphans()
    # Under torchrun, the ranks of a scenario are processes on any machines.
    can_play_again = again is not None and "TORCHELASTIC_RUN_ID" not in os.environ
    plays = Plays(again if can_play_again else None, patience)
    try:
        end = plays.first(play)
        _leave_if_decided(end)
        words = _words_of_loss(end, replay_line)
        if end.has_found:
            # A change that is played as a fix may hang in C: the subject as it is does not.
            found = "The violations that were found before are above; none has a fix."
            words = f"the process {words}\n{found}"
            process_exit.complain(words, process_exit.VIOLATION)
        if not (can_play_again and end.token):
            _leave_without_verdict(words)
        losses = [end]
        while len(losses) < _num_losses_that_count(losses):
            losses.append(plays.again())
            _leave_unless_confirmed(losses, words)
        _tell_violation(losses, replay_line, record)
        return process_exit.VIOLATION
    finally:
        if os.getpid() == owner:  # and not a child, which leaves by another way
            end_children()


def _num_losses_that_count(losses: Iterable[Child]) -> int:
    """Return how many losses in a row come from the scenario, and not from anybody."""
    # A scenario may take all memory or stop its process. A random killer hits two processes in
    # a row, and hardly three.
    lost = [each.loss for each in losses]
    is_killed = any(each.signal == signal.SIGKILL or each.is_stopped for each in lost)
    return 3 if is_killed else 2


def _leave_unless_confirmed(losses: Sequence[Child], words: str) -> None:
    """Leave without a verdict if the last child judged, or if a user ended one."""
    last = losses[-1]
    if last.was_interrupted:
        _leave_if_decided(last)
    if last.code is not None:
        _leave_without_verdict(
            f"{words}\n"
            "A new process ends that run, so nothing is known of what came before."
        )
    if any(each.loss.signal in _REQUESTS for each in losses):
        _leave_without_verdict(
            f"{words}\nA new process was lost as well: it {last.loss.how}."
        )


def _words_of_loss(end: Child, replay_line: ReplayLine) -> str:
    """Say how the first child was lost, and how to play its scenario."""
    how = end.loss.how
    if not end.token:
        return f"that plays {how} before its first scenario{_listed(end.lines)}"
    line = replay_line(end.token)
    words = f"{how} in run {end.num_runs}; to play that one: {line}"
    words += _listed(end.lines)
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return f"that plays {words}"
    return (
        f"of rank {os.environ['RANK']} {words}\n"
        "Under torchrun no other process can play it again."
    )


def _tell_violation(
    losses: Sequence[Child], replay_line: ReplayLine, record: Record | None
) -> None:
    end, last = losses[0], losses[-1]
    name = _PROPERTIES[last.loss.cause]
    token = renamed(end.token, name, last.loss.cause)
    runs = f"in {_NUMBERS[len(losses)]} runs of one scenario"
    summary = f"the process that plays the ranks {last.loss.how}, {runs}"
    click.echo(
        f"VIOLATION: {name} ({last.loss.cause})\n"
        f"  {summary}{_listed(last.lines)}\n\n"
        f"  replay:     {replay_line(token)}\n\n"
        f"1 VIOLATION: found in run {end.num_runs}, which ended the search"
    )
    if record is not None:
        # `record` imports torch, so a child process runs it.
        Plays(None).first(lambda: record(token, summary, last.lines, end.num_runs))


def _leave_without_verdict(words: str) -> NoReturn:
    process_exit.complain(
        f"no verdict: the process {words}", process_exit.HARNESS_FAILED
    )


def _listed(lines: Iterable[CodeLine]) -> str:
    """Return lines of the subject for the end of a text, where a report lists them."""
    return "".join(f"\n              {plain(str(line))}" for line in lines)


def _leave_if_decided(end: Child) -> None:
    """Leave with the code that the child told, or as interrupted."""
    if end.was_interrupted and end.code is None:
        words = "the process that played did not answer; what was found is above"
        process_exit.complain(f"interrupted; {words}", process_exit.INTERRUPTED)
    if end.code is not None:
        sys.exit(end.code)


def refuse_jobs_that_start_again() -> None:
    """End a rank of a job whose ranks were started again, or would be when machines change.

    torchrun takes exit code 1 for a crash, starts the job again with --max-restarts, and
    ends with the code of the last start. With --nnodes MIN:MAX it ends all ranks and starts
    them again when a machine joins or leaves, so that the first verdict is lost.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    count = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if count:
        _refuse(
            f"torchrun starts this job again (restart {count}), and nothing is played: the "
            "verdict of the first start is above; use --max-restarts 0",
            process_exit.HARNESS_FAILED,
        )
    numbers = _numbers_of_machines()
    if numbers is not None and numbers[0] != numbers[1]:
        _refuse(
            f"expected a fixed --nnodes, got {numbers[0]}:{numbers[1]}: torchrun starts all "
            "ranks again when a machine joins or leaves, and the verdict is lost",
            process_exit.BAD_USAGE,
        )


def _refuse(words: str, code: int) -> None:
    if os.environ["LOCAL_RANK"] == "0":  # one line from each machine
        process_exit.complain(words, code)
    sys.exit(code)


def _numbers_of_machines() -> tuple[str, ...] | None:
    """Return the least and the largest number of machines of torchrun's --nnodes."""
    arguments = ""  # of torchrun, each with a zero after it
    with suppress(psutil.Error):
        arguments = "\0".join([*psutil.Process(os.getppid()).cmdline(), ""])
    named = _OPTION.search(arguments)
    found = named or _RANGE.fullmatch(os.environ.get("PET_NNODES", ""))
    return found.groups() if found else None
