"""Parts of a scenario: the smallest first, each once, all of them legal."""

from syncverify.scenario.contract import EVERYTHING, PLAIN_CONTRACT
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.scenario_parts import parts_of

WHOLE = Scenario(
    MeshSpec((2, 3), ("dp", "tp")),
    tuple(ParameterSpec(f"p{n}", (4,), ("R", "S0")) for n in range(2)),
    (2, 2),
    64,
)


def test_the_first_part_has_one_rank_one_parameter_and_one_micro_batch() -> None:
    first = next(parts_of(WHOLE, PLAIN_CONTRACT))
    assert first.mesh == MeshSpec((1,), ("dp",))
    assert first.parameters == (ParameterSpec("p0", (4,), ("R",)),)
    assert first.accumulations == (1,)


def test_parts_are_distinct_and_no_part_is_the_whole() -> None:
    parts = [*parts_of(WHOLE, PLAIN_CONTRACT)]
    assert len({*parts}) == len(parts)
    assert WHOLE not in parts


def test_each_axis_parameter_and_step_is_met_alone_and_beside_the_others() -> None:
    parts = [*parts_of(WHOLE, PLAIN_CONTRACT)]
    assert {part.mesh.shape for part in parts} == {(1,), (2,), (3,), (2, 3)}
    assert {len(part.parameters) for part in parts} == {1, 2}
    assert {part.accumulations for part in parts} == {(1,), (2,), (1, 1), (2, 2)}


def test_words_and_events_are_left_out_first() -> None:
    scenario = Scenario(
        MeshSpec((1,), ("dp",)),
        (ParameterSpec("p0", (), ("R",)),),
        (1,),
        64,
        events=("wait_twice",),
        launch="step_on_side_stream",
    )
    first, *others = parts_of(scenario, EVERYTHING)
    assert (first.events, first.launch) == ((), "current_stream")
    assert {(part.events, part.launch) for part in others} == {
        (("wait_twice",), "current_stream"),
        ((), "step_on_side_stream"),
    }
