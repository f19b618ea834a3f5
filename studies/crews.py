"""Where a study makes its calls: in processes of this machine, or on a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from syncverify.search.crews import crew_at


def with_crew(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options `--jobs` and `--cluster`, and a `crew` as an argument."""

    @click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True,
                  help="Processes of this machine.")  # fmt: skip
    @click.option("--cluster", metavar="PLACE",
                  help="As that of `syncverify run`, in the place of --jobs.")  # fmt: skip
    @functools.wraps(command)
    def with_options(*, jobs: int, cluster: str | None, **others: Any) -> Any:
        return command(crew=crew_at(cluster, jobs), **others)

    return with_options
