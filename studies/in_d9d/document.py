"""The part of docs/in-d9d.md that the command writes."""

from collections.abc import Mapping, Sequence
from typing import Any

from studies.in_d9d.suite import EDITS

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def section(stored: Mapping[str, Any]) -> str:
    """Render the stored result, in Markdown."""
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


def with_section(page: str, stored: Mapping[str, Any]) -> str:
    """Return the page with the part between the marks written anew."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{section(stored)}\n\n{END}{after}"


def _trainer(outcomes: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        f"| {each['layout']} | {each['ranks']} | {each['compared_with']} |"
        f" {each['gradients']} | {each['wrong']} | {each['wrong_of_d9d']} |"
        for each in outcomes
    ]
    heads = "| layout | ranks | compared with | gradients | wrong | wrong of d9d's |"
    return [heads, "|---|---|---|---|---|---|", *rows]


def _tests(outcomes: Mapping[str, str]) -> list[str]:
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    failed = [
        f"- `{name}`: {outcome}"
        for name, outcome in outcomes.items()
        if outcome != "passed"
    ]
    summary = (
        f"Of d9d's {len(outcomes)} tests of its synchronizer {passed} pass with our class. "
        f"{len(EDITS)} edits were made, where ours differs by design:"
    )
    return [
        summary,
        "",
        *(f"- {edit.reason}" for edit in EDITS),
        *failed,
    ]
