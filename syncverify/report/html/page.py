"""The tables and the pictures of a search's page, as plain JSON values."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, assert_never

import torch

from syncverify.judge.decoding import explain
from syncverify.judge.properties.after_wait import after_wait
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import ExpectedGradient
from syncverify.judge.rounding import explain_rounded
from syncverify.plain_text import counted
from syncverify.playing.program import training_program as program
from syncverify.report.html.graph import graph_values
from syncverify.report.html.moment import timeline_values
from syncverify.report.report import Report
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, OPTIONAL, PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import Replayed

_MOST_ELEMENTS: Final = 32
_MOST_GRADIENTS: Final = 240
_NONE: Final = "no gradient"


def drawn(
    report: Report, capabilities: Capabilities, replays: Sequence[Replayed | None]
) -> dict[str, Any]:
    """Return the tables of a report's page, and pictures of the run that shows each violation."""
    pictures = [*map(_pictures, report.violations, replays)]
    if report.is_replay:  # which has one scenario
        return {"violations": pictures}
    pairs = report.summary.pairs
    features = sorted({name for pair in pairs for name in pair})
    explored = {
        "lines": [*report.summary.lines(), *report.lines.lines(), *report.explored],
        "contract": contract_table(report, capabilities),
        # A pair that is not listed cannot occur.
        "coverage": {
            "features": features,
            "pairs": [
                [features.index(one), features.index(other), count]
                for (one, other), count in pairs.items()
            ],
        },
    }
    return {"violations": pictures, "explored": explored}


def contract_table(report: Report, capabilities: Capabilities) -> list[dict[str, Any]]:
    """List the topics of a contract: features, promises, and what was seen of them."""
    topics = dict[str, list[dict[str, Any]]]()
    observed = {each.feature: each for each in report.beyond}
    for feature in FEATURES:
        seen = observed.get(str(feature))
        met = report.coverage.get(feature.topic, {}).get(feature.value, 0)
        topics.setdefault(feature.topic, []).append(
            {
                "value": feature.value,
                "promise": _promise(feature, capabilities),
                "scenarios": met + (seen.num_scenarios if seen else 0),
                "word": seen.rating if seen else "",
                "about": (seen.summary or seen.reason) if seen else "",
            }
        )
    return [{"topic": topic, "features": each} for topic, each in topics.items()]


def _promise(feature: Feature, capabilities: Capabilities) -> str:
    if not capabilities.covers(*feature):
        is_beyond = feature in OPTIONAL or feature in capabilities.newer_features
        return "beyond the contract" if is_beyond else "left out"
    refuses = feature in OPTIONAL and capabilities.may_refuse(*feature)
    return "right, or a clear error" if refuses else "right"


def _pictures(entry: FoundViolation, replay: Replayed | None) -> dict[str, Any]:
    return {
        "timeline": replay and timeline_values(replay.run, replay.violation),
        "gradients": [] if replay is None else gradients_of(replay.judgement),
        "graph": replay and graph_values(entry, replay),
        "program": program_words(entry.scenario),
    }


def gradients_of(judgement: Judgement) -> list[dict[str, Any]]:
    """List expected and observed gradients, by step, parameter and rank."""
    if not judgement.run.carries_data:
        return []
    explains = explain if judgement.scenario.module == PLAIN else explain_rounded
    judged = (
        pair
        for reduced in (True, False)
        for pair in after_wait(judgement, reduced=reduced)
        if not judgement.was_refused(pair[0].step)
    )
    return [
        _gradient(expected, observation.gradients[expected.spec.name], explains)
        for expected, observation in itertools.islice(judged, _MOST_GRADIENTS)
    ]


def _gradient(
    expected: ExpectedGradient, observed: torch.Tensor | None, explains: Any
) -> dict[str, Any]:
    cause = explains(expected, observed)
    value = expected.value()
    return {
        "parameter": expected.spec.name,
        "rank": expected.rank,
        "step": expected.step,
        "expected": elements(value),
        "observed": elements(observed),
        "why": "" if cause is None else cause.text,
        "wrong": cause is not None,
        "expected_mean": _mean(value),
        "observed_mean": _mean(observed),
    }


def elements(tensor: torch.Tensor | None) -> str:
    """Write the first elements of a gradient, whole numbers without a fraction."""
    if tensor is None:
        return _NONE
    listed = tensor.to(torch.float64).reshape(-1)[:_MOST_ELEMENTS].tolist()
    words = [str(int(e)) if e.is_integer() else f"{e:.6g}" for e in listed]
    more = tensor.numel() - len(listed)
    return ", ".join(words) + (f", and {more:,} more" if more else "")


def _mean(tensor: torch.Tensor | None) -> float | str:
    """Return the mean magnitude, 0 of no elements, or why there is none."""
    if tensor is None:
        return _NONE
    mean = tensor.to(torch.float64).abs().mean().item() if tensor.numel() else 0.0
    return mean if math.isfinite(mean) else "not finite"


def program_words(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the parts of the training program in order, each with its actions in words."""
    # The constructor takes the first number of backwards, or `set_required_accumulations()` does.
    parts = program.training_program(scenario, takes_count=True)
    end = (parts.unbind, *parts.after_unbind)
    return [
        {"title": "before step 0", "actions": [*map(_word, parts.start)]},
        *(
            {
                "title": f"step {step.number}",
                "actions": [*map(_word, (*step.before, *step.within, *step.after))],
            }
            for step in parts.steps
        ),
        {"title": "after the last step", "actions": [*map(_word, end)]},
    ]


def _word(action: program.Action) -> str:
    match action:
        case program.Make(count=count):
            return f"make a synchronizer, for {counted(count or 0, 'backward')} in its first step"
        case program.Call(method=method, arguments=arguments, otherwise=otherwise):
            instead = f", or {otherwise}() without that method" if otherwise else ""
            return f"{method}({', '.join(map(str, arguments))}){instead}"
        case program.Backward(
            micro_batch=micro_batch, fails=fails, even_ranks_alone=alone
        ):
            where = ", on even ranks alone" if alone else ""
            return f"backward of micro-batch {micro_batch}{', which raises' if fails else ''}{where}"
        case program.Evaluate():
            return "forward under `no_grad`, without a backward"
        case program.Recover(call=call):
            return _word(call)
        case program.Change(kind=kind):
            return f"{kind} parameters"
        case program.Replace(factor=factor, every=every, first=first):
            return f"set {_some(every, first)} to its product with {factor:g}"
        case program.Drop(every=every, first=first):
            return f"set {_some(every, first)} to None"
        case program.Update():
            return "update the parameters in place"
        case program.PlainBackward():
            return "backward without a synchronizer"
        case program.Observe():
            return "read the gradients"
    assert_never(action)


def _some(every: int, first: int) -> str:
    which = "each" if every == 1 else "every other"
    return f"{which} `.grad`" + (", from the second one on," if first else "")
