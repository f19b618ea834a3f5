"""All words of autograd on the device: uses, backwards and modules, each in one scenario."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from studies.gpu.one_rank import wrong_in
from studies.gpu.part import Part, Result
from syncverify.playing.rank_groups import KeptTransports
from syncverify.scenario.feature_table import PLAIN, WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.feature_scenarios import scenarios_of
from syncverify.subjects.subject import Subject, resolve

TOPICS = ("use", "backward", "module")
_SEED = 0
_PLAIN = Scenario(
    MeshSpec((1,), ("dp",)),
    (ParameterSpec("v", (2, 3), ("R",)), ParameterSpec("w", (6,), ("R",))),
    (1, 2),
    2**20,
)


def run(device: torch.device, topics: Sequence[str] = TOPICS) -> Result:
    """Play each word that the contract of our synchronizer covers."""
    subject = resolve("synchronizer")
    played, wrong, kept = 0, list[str](), KeptTransports()
    for topic in topics:
        for word, scenario in _scenarios(topic, subject):
            played += 1
            wrong += [
                f"`{topic}={word}`: {each}"
                for each in wrong_in(scenario, subject, device, kept)
            ]
    kept.drop()
    return Result.of(
        wrong, device, f"{played} words of {', '.join(topics)}, each in one scenario"
    )


def _scenarios(topic: str, subject: Subject) -> Iterator[tuple[str, Scenario]]:
    for word in WORDS[topic]:
        if word != PLAIN and not subject.capabilities.covers(topic, word):
            continue
        if word == PLAIN:
            yield word, _PLAIN
        elif topic == "use":
            specs = tuple(replace(spec, use=word) for spec in _PLAIN.parameters)
            yield word, replace(_PLAIN, parameters=specs)
        elif topic == "backward":
            yield word, replace(_PLAIN, backward=word)
        else:
            own = subject.capabilities
            drawn = scenarios_of(f"{topic}={word}", own, 1, _SEED).smallest_first(1)
            yield from ((word, scenario) for scenario in drawn)


PART = Part(
    "words",
    "Words of autograd",
    "Every use of a parameter, way to run backward and module of scenarios, in a world of one "
    "rank under our synchronizer: are gradients on the device those of the reference? "
    "Products of whole numbers are compared exactly, with the CPU's; modules within their "
    "bound, with the device's own.",
    run,
)
