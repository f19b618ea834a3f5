"""Real modules: their parameters, and that only sums of gradients may round."""

from dataclasses import replace

import pytest
import torch

from syncverify.errors import ScenarioFormatError
from syncverify.judge.reference import MicroBatches, MicroBatchKey, reference
from syncverify.playing.program.model import build_model
from syncverify.playing.program.modules import MODELS, module_parameters
from syncverify.playing.program.modules.model import initial_value
from syncverify.playing.sim import SimBackend
from syncverify.scenario.feature_table import OWN_LAYERS, WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.subjects.subject import resolve

PAIR, GRID = MeshSpec((2,), ("dp",)), MeshSpec((1, 3), ("dp", "ep"))
NAMES = [*WORDS["module"]][1:]


def scenario_of(
    name: str, mesh: MeshSpec = PAIR, dtype: str = "float32", grad: str | None = None
) -> Scenario:
    specs = tuple(
        replace(spec, dtype=dtype, grad_dtype=grad)
        for spec in module_parameters(name, mesh)
    )
    return Scenario(mesh, specs, (2,), 200, module=name)


def test_parts_of_a_parameter_make_up_the_whole() -> None:
    (up,) = (spec for spec in module_parameters("moe", GRID) if spec.name == "up")
    whole = initial_value(MeshSpec((1,), ("ep",)), replace(up, placements=("S0",)), 0)
    parts = [initial_value(GRID, up, rank) for rank in range(3)]
    assert [len(part) for part in parts] == [2, 2, 0]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "grad"), [("float32", None), ("bfloat16", None), ("bfloat16", "float32")]
)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_one_micro_batch_are_those_of_plain_tensors_to_the_bit(
    name: str, dtype: str, grad: str | None
) -> None:
    """The bound on rounding starts from terms without an error."""
    scenario, subject = (
        scenario_of(name, dtype=dtype, grad=grad),
        resolve("synchronizer"),
    )
    run = SimBackend().run(scenario, subject)
    expected = reference(scenario, subject.capabilities).micro_batches
    for rank, point in ((0, ("accumulated", 0, 0)), (1, ("unbound", 1))):
        observation = run.ranks[rank].at(*point)
        for spec in scenario.parameters:
            gradient = observation.gradients[spec.name]
            exact = expected[MicroBatchKey(spec.name, rank, point[1], 0)]
            assert torch.equal(gradient.to(torch.float64), exact)


@pytest.mark.nccl
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_the_reference_on_a_gpu_is_the_same_each_time_to_the_bit(name: str) -> None:
    scenario, gpu = scenario_of(name), torch.device("cuda", 0)
    one, other = (MicroBatches(scenario, gpu) for _ in range(2))
    one.play(0)
    other.play(0)
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[key]) for key, value in one.items())


def test_each_micro_batch_has_data_of_its_own() -> None:
    parts = reference(scenario_of("mlp"), resolve("synchronizer").capabilities)
    seen = {
        tuple(
            parts.micro_batches[MicroBatchKey("up.weight", rank, step, m)]
            .flatten()
            .tolist()
        )
        for rank in range(2)
        for step, m in ((0, 0), (0, 1), (1, 0))
    }
    assert len(seen) == 6


def test_module_of_a_program_is_known_by_its_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MODELS, "own", MODELS["mlp"])
    monkeypatch.setitem(OWN_LAYERS, "own", "a module of this program")
    scenario = replace(scenario_of("mlp"), module="own")
    assert Scenario.from_json(scenario.to_json()) == scenario
    build_model(scenario, rank=0, device=torch.device("cpu"), meshes=None)


@pytest.mark.parametrize("change", [{"global_shape": (4, 4)}, {"dtype": "bfloat16"}])
def test_parameters_that_the_module_does_not_have_are_refused(
    change: dict[str, object],
) -> None:
    scenario = scenario_of("mlp")
    first, *others = scenario.parameters
    strange = replace(scenario, parameters=(replace(first, **change), *others))
    with pytest.raises(ScenarioFormatError) as caught:
        build_model(strange, rank=0, device=torch.device("cpu"), meshes=None)
    assert str(caught.value) == (
        "malformed scenario: parameters of module 'mlp' are up.weight, up.bias, "
        "down.weight, down.bias, placed as the module says and of one dtype"
    )
