"""Layers of a user's own, which a contract names: run, token, replay, database."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncverify.playing.program.modules import module_parameters
from syncverify.playing.program.modules.layers import provide_layers
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.replay_token import Reproducer, decode, encode, renamed
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from tests.programs import forget_layers

Call = Callable[..., Any]
LAYERS = """
import torch
from torch import nn


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))

    def forward(self, generator):
        inputs = torch.randn(2, 3, generator=generator).to(self.weight.dtype)
        return (inputs @ self.weight).square().mean().float()


class Unused(Regression):
    def __init__(self):
        super().__init__()
        self.other = nn.Parameter(torch.empty(3))
"""
SUBJECT = '''
from syncverify.synchronizer import GradientSynchronizer


class DoublesSmall(GradientSynchronizer):
    """Doubles gradients that are no whole multiples of 2**-20, such as those of layers."""

    def __init__(self, groups, *settings):
        super().__init__(groups, *settings)
        self.mine = [p for group in groups for p in group]

    def wait(self):
        super().wait()
        for parameter in self.mine:
            gradient = parameter.grad
            if gradient is not None and gradient.dtype.is_floating_point:
                local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
                parts = (local.double() * 2.0**20).nan_to_num()
                if (parts != parts.round()).any():
                    local.mul_(2)
'''
CONTRACT = 'layers = ["own_layers:Regression"]\n'
RUN = ("run", "own_subject:DoublesSmall", "--seed", "3", "--ranks", "2")


@pytest.fixture
def layers(call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    Path("own_layers.py").write_text(LAYERS)
    Path("own_subject.py").write_text(SUBJECT)
    Path("contract.toml").write_text(CONTRACT)
    for name in ("own_layers", "own_subject"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield call
    forget_layers()


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
def test_a_layer_of_a_contract_is_trained_replayed_and_kept(layers: Call) -> None:
    contract = ("--contract", "contract.toml")
    kept = ("--database", "kept")
    found = layers(*RUN, *contract, *kept, "--examples", "60", "--stop-at-first")
    assert found.code == 1
    assert "module: Regression: of your own, own_layers:Regression" in found.out
    (line,) = re.findall(r"replay: +syncverify (replay .+)", found.out)
    assert line.endswith("--contract contract.toml")

    forget_layers()
    again = layers(*line.split())
    assert again.code == 1
    assert "\nREPRODUCED: " in again.out

    forget_layers()
    strange = layers(*line.split()[:-2])
    assert strange.code == 2
    assert strange.complaint == (
        "malformed scenario: module is one of ('plain', 'mlp', 'conv', "
        "'conv_channels_last', 'moe', 'gpt'), not 'Regression'; a layer of your own needs "
        "the contract whose `layers` has it"
    )

    # A run without the contract keeps the violation for the next one.
    without = layers(*RUN, *kept, "--examples", "3")
    assert (without.code, without.err) == (0, "")
    assert "dropped" not in without.out
    assert layers(*RUN, *contract, *kept, "--examples", "1").code == 1


def test_a_token_is_refused_under_another_contract_of_the_same_process(
    layers: Call,
) -> None:
    provide_layers(Capabilities(layers=("own_layers:Regression",)))
    mesh = MeshSpec((1,), ("dp",))
    parameters = module_parameters("Regression", mesh)
    scenario = Scenario(mesh, parameters, (1,), 1, module="Regression")
    token = encode(Reproducer("every_rank_finishes", "raised", scenario))
    other = decode(renamed(token, "every_wait_completes", "own"))
    assert (other.property, other.cause) == ("every_wait_completes", "own")
    assert other.scenario == scenario
    refused = layers("replay", token, "own_subject:DoublesSmall")
    assert refused.code == 2
    assert refused.complaint == (
        "subject 'own_subject:DoublesSmall' does not promise to handle module=Regression: "
        "its capabilities leave that out; replay with a subject that covers it"
    )


@pytest.mark.parametrize(
    ("layer", "complaint"),
    [
        (
            "own_layers:LAYERS",
            "layer 'own_layers:LAYERS' cannot be imported: AttributeError: module 'own_",
        ),
        ("own_layers", "expected each of `layers` of a contract as 'module:attribute'"),
        ("own_layers:One', 'own_layers:One", "got 'own_layers:One' twice"),
        ("own_layers:mlp", "with a name of its own besides conv, conv_channels_last, "),
    ],
)
def test_a_layer_that_cannot_be_trained_is_named(
    layers: Call, layer: str, complaint: str
) -> None:
    Path("contract.toml").write_text(f"layers = ['{layer}']\n")
    refused = layers(*RUN, "--contract", "contract.toml", "--examples", "1")
    assert refused.code == 2
    assert complaint in refused.complaint
