"""The command: run all parts, and write the page.

Exit codes: 0 all parts that could run passed, 1 a part failed, 2 bad usage, 130 interrupted.
"""

import os
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import click
import torch

from studies.documents import table, with_part, write_part
from studies.gpu import (
    bank,
    commands,
    host_waits,
    installation,
    shared_device,
    step_time,
    traces,
    words,
)
from studies.gpu.part import Part, Result, device_of_parts
from syncverify.command.process_exit import run_command

FAILED = 1
PARTS: tuple[Part, ...] = (
    installation.PART, words.PART, commands.TESTS, commands.SEARCHES, shared_device.PART,
    bank.PART, traces.PART, host_waits.PART, step_time.PART,
)  # fmt: skip


@click.command()
@click.option("--only", multiple=True, type=click.Choice([part.name for part in PARTS]),
              help="A part; repeatable.")  # fmt: skip
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path),
              default=None, help="Write the results between the marks of this page.")  # fmt: skip
def main(only: tuple[str, ...], markdown: Path | None) -> int:
    """Run the checks that need a GPU, as far as this machine can."""
    if markdown is not None:
        with_part(markdown, "parts", "")  # refuses it before minutes of work
    torch.set_num_threads(1)
    # Of the queues of a device: streams that share one wait for each other.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as the nccl backend
    results: list[tuple[Part, Result]] = []
    for part in PARTS:
        if part.name in (only or (part.name,)):
            result = _result(part)
            results.append((part, result))
            click.echo(
                f"{part.name}: {result.state} on {result.device}: {result.summary}"
            )
            if result.state == "failed":
                for line in result.lines:
                    click.echo(f"  {line}")
    click.echo(summary(results))
    if markdown is not None:
        today = datetime.now(tz=UTC).date()
        write_part(markdown, "parts", page(results, installation.versions(), today))
    return FAILED if any(each.state == "failed" for _, each in results) else 0


def _result(part: Part) -> Result:
    """Run a part; an error of its own is a failure, and the other parts go on."""
    device = device_of_parts()
    try:
        return part.run(device)
    except Exception as error:  # noqa: BLE001  # any; the page shows it
        lines = traceback.format_exception_only(error)
        quoted = ["```text", *"".join(lines).splitlines(), "```"]
        name = type(error).__name__
        return Result("failed", device.type, f"ended by {name}", quoted)


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


if __name__ == "__main__":
    run_command(main, "python -m studies.gpu")
