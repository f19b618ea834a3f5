"""Words of scenarios make their tensors on the device of the parameters.

`meta` stands for a GPU: torch refuses to mix its tensors with those of a CPU.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from syncverify.playing.program.graphs import cpp
from syncverify.playing.program.graphs.backwards import BACKWARDS, run_backward
from syncverify.playing.program.graphs.uses import USES
from syncverify.playing.program.model import build_model
from syncverify.playing.program.modules.layers import module_parameters
from syncverify.scenario.feature_table import PLAIN, WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

META = torch.device("meta")
MESH = MeshSpec((1,), ("dp",))
PAIR = Scenario(
    MESH,
    (ParameterSpec("v", (2, 3), ("R",)), ParameterSpec("w", (6,), ("R",))),
    (1,),
    2**20,
)
# These read values, which tensors on `meta` do not have, or need a device that torch knows.
NEED_VALUES = {"inference_branch", "offloaded", "autocast", "compiled_region"}
COMPILES = {"compiled_autograd"}


def scenarios() -> Iterator[tuple[str, Scenario]]:
    for use in USES:
        if use not in NEED_VALUES:
            specs = tuple(replace(spec, use=use) for spec in PAIR.parameters)
            yield f"use={use}", replace(PAIR, parameters=specs)
    for backward in BACKWARDS:
        if backward not in COMPILES:
            yield f"backward={backward}", replace(PAIR, backward=backward)
    for module in WORDS["module"]:
        if module != PLAIN:
            specs = module_parameters(module, MESH)
            yield f"module={module}", replace(PAIR, parameters=specs, module=module)


SCENARIOS = dict(scenarios())


@pytest.mark.parametrize(
    "word",
    [
        # A compiler of C++ takes half a minute, once for a machine.
        pytest.param(word, marks=[pytest.mark.nightly] * word.startswith("use=cpp_"))
        for word in SCENARIOS
    ],
)
def test_a_word_makes_its_tensors_on_the_device_of_the_parameters(word: str) -> None:
    scenario = SCENARIOS[word]
    cpp.prepare(spec.use for spec in scenario.parameters)
    model = build_model(scenario, rank=0, device=META, meshes=None)
    run_backward(scenario.backward, model.losses(step=0, micro_batch=0))
    for parameter in model.parameters.values():
        assert parameter.grad.device == META
