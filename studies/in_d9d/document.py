"""The part of docs/in-d9d.md that the command writes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from studies.documents import RESULTS, Document, table
from studies.in_d9d.suite import EDITS

STORED: Final = RESULTS / "in_d9d.json"


def section() -> str:
    """Return the stored result, in Markdown."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {each}" for name, each in stored["versions"].items())
    return "\n".join(
        [
            f"Played on {stored['date']} with {versions}, in processes of gloo on a CPU.",
            "",
            *_trainer(stored["trainer"]),
            "",
            *_tests(stored["tests"]),
        ]
    )


def _trainer(outcomes: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = ("layout", "ranks", "compared_with", "gradients", "wrong", "wrong_of_d9d")
    heads = [*(each.replace("_", " ") for each in keys[:-1]), "wrong of d9d's"]
    return [*table(heads, ([each[key] for key in keys] for each in outcomes))]


def _tests(outcomes: Mapping[str, str]) -> list[str]:
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    failed = [
        f"- `{name}`: {outcome}"
        for name, outcome in outcomes.items()
        if outcome != "passed"
    ]
    summary = (
        f"{passed} of d9d's {len(outcomes)} tests of its synchronizer pass with our class. "
        f"{len(EDITS)} edits were made, where ours differs by design:"
    )
    return [
        summary,
        "",
        *(f"- {edit.reason}" for edit in EDITS),
        *failed,
    ]


PART: Final = Document("docs/in-d9d.md", section, "results")
