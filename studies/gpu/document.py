"""The page that the command writes, docs/gpu.md."""

from collections.abc import Mapping, Sequence
from datetime import date

from studies.documents import table
from studies.gpu.part import Part, Result


def summary(results: Sequence[tuple[Part, Result]]) -> str:
    """Say in one line how many parts passed, failed and did not run."""
    states = [result.state for _, result in results]
    on_gpu = sum(result.device == "cuda" for _, result in results)
    return (
        f"{states.count('passed')} parts passed, {states.count('failed')} failed, "
        f"{states.count('not run')} did not run; {on_gpu} of {len(results)} ran on a GPU"
    )


def page(
    results: Sequence[tuple[Part, Result]], versions: Mapping[str, str], today: date
) -> str:
    """Render the part of the page that a run writes.

    Args:
        results: The parts that ran, in their order, each with its result.
        versions: Device and versions, by topic.
        today: Date of the run.

    Returns:
        The part, in Markdown.
    """
    facts = [*versions.items(), ("date", today.isoformat())]
    overview = [
        (part.title, result.device, result.state, result.summary)
        for part, result in results
    ]
    lines = [
        *table(("machine", ""), facts),
        "",
        f"**{summary(results)}.**",
        "",
        *table(("part", "device", "result", "in a line"), overview),
    ]
    for part, result in results:
        verdict = (
            f"Device: {result.device}. {result.state.capitalize()}: {result.summary}."
        )
        lines += ["", f"## {part.title}", "", part.about, "", verdict]
        if result.lines:
            lines += ["", *result.lines]
    return "\n".join(lines)
