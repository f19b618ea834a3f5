"""A simulation as text, JSON and page: each violation, and the schedules that were played."""

from dataclasses import asdict
from typing import Any, Final

from syncverify.faces.simulation.simulation import FoundInProgram, Simulation
from syncverify.judge.causes import ADVICE
from syncverify.judge.properties.registry import STATEMENTS_IN_ANY_PROGRAM
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import is_exception
from syncverify.plain_text import counted
from syncverify.replay_line import replay_line
from syncverify.report.account import Account, Explanation, count_of_violations, titled
from syncverify.report.evidence import evidence_json, numbers_text, titled_events
from syncverify.report.hints import hint
from syncverify.report.html.moment import timeline_values
from syncverify.report.text import events_with_code, seen_on
from syncverify.scenario.replay_token import encode
from syncverify.scenario.schedule import COMPLETE, FIRST, RANDOM, SAME
from syncverify.trace.source_lines import CodeLine

_TIMINGS: Final = {
    SAME: "timing cannot matter",
    FIRST: "the default timing; other timings may differ, see --schedules all",
    COMPLETE: "every timing that can matter",
    RANDOM: "random timings",
}
# torch's error, which says nothing of the way out.
_NO_BACKEND: Final = "No backend type associated with device type cpu"


def account_of(simulation: Simulation) -> Account:
    """Return the account of a simulation."""
    return Account(
        subject=simulation.program,
        verdict=verdict(simulation),
        is_right=None if simulation.refused else simulation.is_right,
        explanations=[
            explanation_of(simulation, each) for each in simulation.violations
        ],
        remarks=[*map(str, simulation.remarks)],
        facts={
            "ranks": simulation.num_ranks,
            "device": simulation.device,
            "runs": simulation.num_runs,
            "seed": simulation.seed,
            "schedules": simulation.coverage.extent if simulation.coverage else "",
            "refused": simulation.refused,
        },
    )


def explanation_of(simulation: Simulation, found: FoundInProgram) -> Explanation:
    """Return a violation with its code; of a program with a name, with the line that replays it."""
    violation, shown, program = found.violation, set[CodeLine](), simulation.program
    is_named, token = simulation.is_found_by_name, encode(simulation.play_of(found))
    # A test is played by pytest.
    line = f"pytest {program}" if "::" in program else replay_line(token, program)
    harmed = list[str]()
    if harm := found.harm:
        first, other = numbers_text(harm.as_queued), numbers_text(harm.other)
        where = f" from element {harm.start} on" if harm.start else ""
        harmed = [
            f"rank {harm.rank} returns {first}{where} in one legal order,",
            f"and {other} in another one",
        ]
    sections = [
        *(
            events_with_code(events, shown, word)
            for word, events in titled_events(violation.evidence)
        ),
        titled("harm:", harmed),
        titled("seen on:", [seen_on(violation.ranks)]),
    ]
    return Explanation.of(
        violation,
        STATEMENTS_IN_ANY_PROGRAM,
        hint=_hint(found),
        token=token if is_named else "",
        replay=line if is_named else "",
        sections=sections,
        facts={
            "schedule": list(found.schedule.choices),
            "evidence": evidence_json(violation.cause, violation.evidence),
            "harm": harm and asdict(harm),
        },
    )


def _hint(found: FoundInProgram) -> str:
    """Return the repair to try first; "" where a remedy or the program's own error says more."""
    violation = found.violation
    if _NO_BACKEND in violation.summary:
        return ADVICE["no_backend"]
    # What the ranks that stand still have launched last.
    traces = (found.run.ranks[rank].trace for rank in violation.ranks)
    last = [[each.operation for each in launches_of(trace)][-1:] for trace in traces]
    if (
        violation.cause == "deadlock"
        and len(last) > 1
        and last == [["send"]] * len(last)
    ):
        return ADVICE["all_send"]
    says_more = violation.evidence.unordered or is_exception(violation.cause)
    if says_more or violation.cause == "process_died":
        return ""
    return hint(violation.cause, violation.evidence)


def verdict(simulation: Simulation) -> str:
    """Return the last line of a report: violations, ranks, and the schedules that were played."""
    scope = f"{counted(simulation.num_ranks, 'rank')}, simulated {simulation.device}"
    if simulation.refused:
        return f"NOT SIMULATED: {simulation.program} ({scope}): {simulation.refused}"
    assert simulation.coverage is not None
    extent = simulation.coverage.extent
    is_swapped = any(each.is_swap for each in simulation.remarks)
    # In that order of the ranks the values are what they are, but they may not be meant.
    see_remark = is_swapped and extent == SAME
    timings = "see the remark" if see_remark else _TIMINGS.get(extent, extent)
    played = f"{counted(simulation.num_runs, 'run')}: {timings}"
    title = count_of_violations(len(simulation.violations))
    return f"{title}: {simulation.program} ({scope}, {played})"


def pictures_of(found: FoundInProgram) -> dict[str, Any]:
    """Return the pictures of one violation."""
    return {"timeline": timeline_values(found.run, found.violation)}


def drawn(simulation: Simulation) -> dict[str, Any]:
    """Return the pictures of a page."""
    right = simulation.run if simulation.is_right else None
    return {
        "violations": [*map(pictures_of, simulation.violations)],
        "timeline": right and timeline_values(right, None),
    }
