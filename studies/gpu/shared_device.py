"""Ranks that share one device: random scenarios of right subjects, on real streams."""

from collections.abc import Sequence

import torch
from hypothesis import Phase

from studies.gpu.part import Part, Result
from studies.gpu.real_streams.lanes import KINDS
from studies.gpu.real_streams.playing import judged, verdicts_on_streams
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing
from syncverify.search.judge import Draw
from syncverify.subjects.subject import Subject, resolve

SUBJECTS = ("synchronizer", "ddp")
SCENARIOS = 10
RANKS = 4


def run(
    device: torch.device,
    subjects: Sequence[str] = SUBJECTS,
    num_scenarios: int = SCENARIOS,
) -> Result:
    """Play scenarios, and report each violation: all are false alarms, or real races."""
    wrong: list[str] = []
    for name in subjects:
        subject = resolve(name)
        for number, scenario in enumerate(drawn(subject, num_scenarios)):
            wrong += [
                f"`{name}`, scenario {number}: {each}"
                for each in said_of(scenario, subject, device)
            ]
    place = (
        f"{len(KINDS) + 1} times each on real streams"
        if device.type == "cuda"
        else "on the simulated streams of `sim`"
    )
    return Result.of(
        wrong, device, f"{num_scenarios} scenarios of {', '.join(subjects)}, {place}"
    )


def said_of(scenario: Scenario, subject: Subject, device: torch.device) -> list[str]:
    """Name the violations of a scenario, each once: on real streams, or on `sim`."""
    if device.type == "cuda":
        verdicts = verdicts_on_streams(scenario, subject, device)
        return [*dict.fromkeys(each for _, found in verdicts for each in found)]
    return said_on_sim(scenario, subject)


def said_on_sim(scenario: Scenario, subject: Subject) -> list[str]:
    """Name the violations of a scenario on `sim`."""
    return judged(scenario, SimBackend().run(scenario, subject), subject)


def drawn(subject: Subject, num_scenarios: int) -> list[Scenario]:
    """Draw the scenarios of a fixed seed for the contract of a subject."""
    # The ranks run at once here, and share autograd's anomaly mode: scenarios with it stay out.
    scenarios: list[Scenario] = []

    def keep(scenario: Scenario, _: Draw) -> None:
        if scenario.backward != "anomaly":
            scenarios.append(scenario)

    drawing = Drawing(subject.capabilities, RANKS, 2 * num_scenarios, random_seed=0)
    drawing.for_each(keep, Phase.generate)
    return scenarios[:num_scenarios]


PART = Part(
    "shared-device",
    "Ranks that share one device",
    "Simulated ranks as threads of one process, with the simulator's network on real streams: "
    "`torch.cuda._sleep` before each operator of one kind of streams at a time, and freed "
    "memory filled with NaN, so that a missing wait gives a wrong number. On a CPU the "
    "scenarios run on `sim`.",
    run,
)
