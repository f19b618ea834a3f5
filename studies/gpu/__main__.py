"""The command: run all parts, and write the page.

Exit codes: 0 all parts that could run passed, 1 a part failed, 2 bad usage, 130 interrupted.
"""

import os
import traceback
from datetime import UTC, datetime
from pathlib import Path

import click
import torch

from studies.documents import with_part, write_part
from studies.gpu.all_parts import PARTS
from studies.gpu.document import page, summary
from studies.gpu.installation import versions
from studies.gpu.part import Part, Result, device_of_parts
from syncverify.command.process_exit import run_command

FAILED = 1


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
        write_part(markdown, "parts", page(results, versions(), today))
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


if __name__ == "__main__":
    run_command(main, "python -m studies.gpu")
