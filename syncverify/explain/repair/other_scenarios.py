"""Other scenarios of a violation: larger ones that show more, and ones that show a cost.

Note [The smallest scenario with a witness]
    A scenario is shrunk as long as the violation stays. For a race that may be too small: on
    one rank a collective returns what it took in, so no order of it shows. Then scenarios
    that are a little larger are played, the smallest first. The first one that shows the same
    violation with a wrong gradient counts.

Note [Numbers that differ]
    With two ranks, two micro-batches and two parameters, half of the right gradient tells
    nothing about what divided it. Where several mistakes give the value in the smallest
    scenario, a few larger ones are played, in which the numbers of ranks, of micro-batches, of
    elements and of parameters differ. The one with the fewest readings is shown.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from syncverify.errors import ScenarioFormatError
from syncverify.explain.case import Case
from syncverify.explain.repair.comparison import Needs
from syncverify.explain.witness.witness_search import OF_GRADIENTS, find_witness
from syncverify.playing.program.modules.layers import require_own_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule, ScheduleChoice
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation, NoWitness, Witness
from syncverify.search.judge import Judge

_Change = Callable[[Scenario], Scenario]
_MAX_FOR_WITNESS: Final = 4
_MAX_FOR_READINGS: Final = 12
_RANKS: Final = 3
_ELEMENTS: Final = 5
_MAX_RANKS: Final = 4
# Number of ranks, of parameters, and of those that a bucket holds; micro-batches of each step.
_SHAPES: Final = (
    (2, 6, 2, (2, 2)),
    (2, 6, 1, (1, 1)),
    (3, 5, 2, (1, 3)),
    (4, 4, 2, (2, 1)),
    (2, 3, 3, (3, 2)),
)
# Shapes of parameters that differ in each number that code may take for another one: elements,
# dims, rows, columns, bytes. Placements on a mesh of two axes; micro-batches go up, down, and
# stay.
_VARIED: Final = ((2, 3), (3,), (), (4, 1, 2), (1, 5), (3, 2))
_PLACED: Final = (
    *(("R", "R"), ("R", "S0"), ("R", "R")),
    *(("S0", "R"), ("R", "S1"), ("S0", "R")),
)
_VARIED_STEPS: Final = (2, 1, 1, 3)
_VARIED_CAP: Final = 36
_LONE: Final = (
    "on one rank a collective returns what it took in, and no larger scenario that was "
    "played for it gave a witness"
)


def with_witness(case: Case) -> FoundViolation:
    """Return a violation with its witness; see Note [The smallest scenario with a witness]."""
    # A gradient that is wrong in every order of a larger scenario may be of another defect. It is
    # a witness where a wrong gradient is a consequence: the search met it with the violation alone.
    own, entry = _witnessed(case), case.found
    if not isinstance(own.witness, NoWitness):
        return own
    wrong = {judge.__name__ for judge in OF_GRADIENTS}
    harms = {
        (each.property, each.cause)
        for each in entry.related
        if each.is_consequence and each.property in wrong
    }
    changes = (_more_elements, _second_parameter, _more_micro_batches, _second_step)
    ways = ((_second_rank, *chosen) for chosen in _some_of(changes, (0, 1, 2)))
    larger = _changed(entry.scenario, case.subject.capabilities, ways)
    larger = itertools.islice(larger, _MAX_FOR_WITNESS)
    for each in _shown_in(larger, DEFAULT_SCHEDULE, case):
        shown = _witnessed(replace(case, found=each))
        match shown.witness:
            case Witness(inverted=inverted, identity=identity):
                if inverted is not None or identity in harms:
                    return shown
    if harms:
        return replace(own, witness=replace(own.witness, is_elsewhere=True))
    if entry.scenario.mesh.num_ranks > 1:
        return own
    reasons = (*own.witness.reasons, _LONE)
    return replace(own, witness=replace(own.witness, reasons=reasons))


def _witnessed(case: Case) -> FoundViolation:
    return replace(case.found, witness=find_witness(case))


def with_fewer_readings(case: Case, max_ranks: int) -> FoundViolation:
    """Return a violation in the scenario with the fewest readings; see Note [Numbers that differ]."""
    best, fewest = case.found, len(case.found.violation.evidence.readings)
    if not fewest or best.not_shrunk:
        return best
    changes = (_three_ranks, _five_elements, _more_micro_batches)
    ways = _some_of(changes, (1, 2, 3)) if best.scenario.module == PLAIN else ()
    larger = _changed(best.scenario, case.subject.capabilities, ways)
    played = (each for each in larger if each.mesh.num_ranks <= max_ranks)
    first = itertools.islice(played, _MAX_FOR_READINGS)
    for each in _shown_in(first, best.schedule, case):
        count = len(each.violation.evidence.readings)
        if count < fewest:
            best, fewest = each, count
        if not fewest:
            break
    return best


def _shown_in(
    scenarios: Iterable[Scenario], schedule: Schedule, case: Case
) -> Iterator[FoundViolation]:
    """Yield a violation as it shows in other scenarios."""
    judge = Judge(case.subject, case.backend, ScheduleChoice(), random_seed=0)
    entry = case.found
    for scenario in scenarios:
        judged = judge.judge_schedule(scenario, schedule)
        same = judged.violations.get(entry.violation.identity)
        if same is not None:
            yield replace(same, related=entry.related, is_smallest=entry.is_smallest)


def with_one_parameter_more(
    scenario: Scenario, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield the scenario with one more parameter, if it is within the contract."""
    return _changed(scenario, capabilities, [(_second_parameter,)])


def _some_of(
    changes: Sequence[_Change], counts: Iterable[int]
) -> Iterator[tuple[_Change, ...]]:
    for count in counts:
        yield from itertools.combinations(changes, count)


def measured_scenarios(
    found: Scenario, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield scenarios within a contract in which a change of the subject shows its cost.

    The last ones repeat the mesh and the parameters of a violation: they have all that it needs.
    """
    listed = [*_plain(), *_varied(), *_like(found)]
    if not capabilities.varying_accumulations:
        listed = [
            replace(each, accumulations=(max(each.accumulations),) * each.num_steps)
            for each in listed
        ]
    return _within(capabilities, listed)


def _changed(
    scenario: Scenario, capabilities: Capabilities, ways: Iterable[Sequence[_Change]]
) -> Iterator[Scenario]:
    """Yield a scenario changed in each way, each new scenario of the contract once."""

    def made() -> Iterator[Scenario]:
        for changes in ways:
            with contextlib.suppress(ScenarioFormatError):
                larger = scenario
                for change in changes:
                    larger = change(larger)
                if larger.module != PLAIN:
                    require_own_parameters(larger)
                if larger != scenario:
                    yield larger

    return _within(capabilities, made())


def _within(
    capabilities: Capabilities, scenarios: Iterable[Scenario]
) -> Iterator[Scenario]:
    for scenario in dict.fromkeys(scenarios):
        if not features_outside(scenario, capabilities):
            yield scenario


def _plain() -> Iterator[Scenario]:
    """Yield scenarios of plain steps with equal parameters on a mesh of one axis."""
    spec = ParameterSpec("p0", (3,), ("R",))
    for ranks, count, held, steps in _SHAPES:
        mesh = MeshSpec((ranks,), ("dp",))
        yield Scenario(mesh, _copies((spec,), count), steps, held * 12)
    # A bucket outweighs the records about it.
    large = _copies((replace(spec, global_shape=(16, 32)),), 4)
    yield Scenario(MeshSpec((2,), ("dp",)), large, (1, 1), 2 * 16 * 32 * 4)


def _varied() -> Iterator[Scenario]:
    """Yield scenarios of parameters, groups and steps that all differ."""
    row, square = MeshSpec((2,), ("dp",)), MeshSpec((2, 2), ("dp", "tp"))
    varied = [*zip(_VARIED, _PLACED, strict=True)]
    for mesh, num_groups in ((row, 1), (row, 2), (square, 2)):
        parameters = tuple(
            ParameterSpec(
                f"p{number}",
                shape,
                codes if mesh is square else ("R",),
                group=number % num_groups,
            )
            for number, (shape, codes) in enumerate(varied)
        )
        yield Scenario(mesh, parameters, _VARIED_STEPS, _VARIED_CAP)


def _like(found: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with the mesh, the words and copies of the parameters of another one."""
    if found.module != PLAIN or found.mesh.num_ranks > _MAX_RANKS:
        return
    for count, held in ((5, 2), (4, 4)):
        with contextlib.suppress(ScenarioFormatError):
            copies = _copies(found.parameters, count)
            larger = replace(_second_rank(found), parameters=copies)
            num_bytes = max(1, Needs.of(replace(larger, events=())).num_bytes)
            turns = larger.mesh.num_ranks * larger.num_steps
            largest = num_bytes // (turns * len(copies))
            yield replace(larger, bucket_cap_bytes=max(1, largest * held))


def _copies(
    parameters: tuple[ParameterSpec, ...], count: int
) -> tuple[ParameterSpec, ...]:
    """Return at least a number of parameters: some parameters over and over, by new names."""
    listed = parameters * -(-count // len(parameters))
    return tuple(replace(spec, name=f"p{index}") for index, spec in enumerate(listed))


def _second_rank(scenario: Scenario) -> Scenario:
    mesh = scenario.mesh
    shape = mesh.shape if mesh.num_ranks > 1 else (2, *mesh.shape[1:])
    return replace(scenario, mesh=replace(mesh, shape=shape))


def _three_ranks(scenario: Scenario) -> Scenario:
    mesh = scenario.mesh
    shape = tuple(_RANKS if size == 2 else size for size in mesh.shape)
    return replace(scenario, mesh=replace(mesh, shape=shape))


def _more_elements(scenario: Scenario) -> Scenario:
    return _resized(scenario, lambda shape: tuple(2 * n for n in shape) or (2,))


def _five_elements(scenario: Scenario) -> Scenario:
    return _resized(scenario, lambda shape: (_ELEMENTS, *shape[1:]))


def _resized(
    scenario: Scenario, resized: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Scenario:
    specs = scenario.parameters
    larger = (replace(each, global_shape=resized(each.global_shape)) for each in specs)
    return replace(scenario, parameters=tuple(larger))


def _second_parameter(scenario: Scenario) -> Scenario:
    names = {spec.name for spec in scenario.parameters}
    name = next(f"p{n}" for n in itertools.count() if f"p{n}" not in names)
    copy = replace(scenario.parameters[-1], name=name)
    return replace(scenario, parameters=(*scenario.parameters, copy))


def _more_micro_batches(scenario: Scenario) -> Scenario:
    more = tuple(count + 1 for count in scenario.accumulations)
    return replace(scenario, accumulations=more)


def _second_step(scenario: Scenario) -> Scenario:
    counts, events = scenario.accumulations, scenario.events
    events = (*events, PLAIN) if events else ()
    return replace(scenario, accumulations=(*counts, counts[-1]), events=events)
