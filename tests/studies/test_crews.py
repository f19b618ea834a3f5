"""A study takes the crew that its options name."""

from __future__ import annotations

import functools

import click
import pytest
from click.testing import CliRunner

from studies.crews import with_crew
from syncverify.cluster.crew import run_on_cluster
from syncverify.processes.calls import Crew, run_in_processes


@pytest.mark.parametrize(
    ("options", "function", "keywords"),
    [
        ([], run_in_processes, {"jobs": 1}),
        (["--jobs", "3"], run_in_processes, {"jobs": 3}),
        (["--cluster", "local:2"], run_on_cluster, {"place": "local:2"}),
    ],
)
def test_options_name_the_crew(
    options: list[str], function: object, keywords: dict[str, object]
) -> None:
    crews: list[Crew] = []

    @click.command()
    @with_crew
    def command(crew: Crew) -> None:
        crews.append(crew)

    CliRunner().invoke(command, options, catch_exceptions=False)
    (crew,) = crews
    assert isinstance(crew, functools.partial)
    assert crew.func is function
    assert crew.keywords == keywords
