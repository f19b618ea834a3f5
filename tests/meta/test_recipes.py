"""The recipes of CONTRIBUTING are complete: followed in a copy, they name all files to touch."""

import json
import shutil
from pathlib import Path

import pytest

import syncverify
from tests.warm_python import python

PROPERTY = '''\
"""The property of a program without broadcasts."""

from collections.abc import Iterator

from syncverify.judge.evidence import Event, Mistimed
from syncverify.judge.properties.judgement import Judgement, Property
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Violation, finding


@Property(
    order=5,
    condition="Every run.",
    example="parameters that are sent in each step",
    needs_data=False,
)
def nothing_is_broadcast(judgement: Judgement) -> Iterator[Violation]:
    """No rank issues a broadcast.

    Catches: parameters that are sent in each step. Does not judge other collectives.
    """
    for rank, rank_run in enumerate(judgement.run.ranks):
        for launch in launches_of(rank_run.trace):
            if launch.operation == "broadcast":
                evidence = Mistimed(rank=rank, events=(Event("", launch),))
                yield finding("sent", f"rank {rank} broadcasts", rank, None, evidence)
'''
CAUSE = """\
    "sent": Mistake("a rank broadcasts", "send parameters once, in bind()"),
"""
DEFECT = '''


@reported(
    "broadcasts-in-wait", "owner/project#1",
    trigger="2 ranks", violates="nothing_is_broadcast", cause="sent",
)
class BroadcastsInWait(ViewBuckets):
    """Each step sends the parameters again."""

    def wait(self) -> None:
        super().wait()
        dist.broadcast(torch.zeros(1), 0)
'''
SUBJECT = '''\
"""A right synchronizer as a subject."""

from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets

SUBJECTS = {"views": "ViewBuckets"}
'''
WRITER = '''\
def terse(annotations: Iterable[Annotation]) -> Iterator[str]:
    """Yield a line for each annotation."""
    yield from (f"TERSE {each.title}" for each in annotations)


# One for each of'''
# A feature is a row. A use of a parameter is also a function of its name.
USE_ROW = """\
        Row("negated_twice", "negated before the product, and after it"),
    ), "parameter", Row(PLAIN, "one product in the loss")"""
USE = """

def negated_twice(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    return -dot(-local, constant)
"""
EVENT_ROW = """\
        EventRow("wait_thrice", "`wait()` is called three times", "right", waits=3),
    ), plain=EventRow("""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package, changed by the recipes."""
    folder = tmp_path_factory.mktemp("copy")
    (source,) = syncverify.__path__
    package = shutil.copytree(source, folder / "syncverify")
    (package / "judge/properties/broadcasts.py").write_text(PROPERTY)
    table = "OF_RUNS: Final[Mistakes] = {\n"
    insert(package / "judge/causes/of_runs.py", table, CAUSE)
    layout = package / "subjects/bugbank/layout.py"
    layout.write_text(layout.read_text() + DEFECT)
    (package / "subjects/views.py").write_text(SUBJECT)
    insert(
        package / "scenario/settings.py",
        '    "text": "",\n',
        '    "terse": "in short",\n',
    )
    writers = package / "report/annotations.py"
    insert(writers, '    "github": workflow_commands,\n', '    "terse": terse,\n')
    writers.write_text(writers.read_text().replace("# One for each of", WRITER))
    table = package / "scenario/feature_table.py"
    for row in (USE_ROW, EVENT_ROW):
        last = row.partition("\n")[2]
        assert table.read_text().count(last) == 1
        table.write_text(table.read_text().replace(last, row))
    uses = package / "playing/program/graphs/uses.py"
    insert(uses, "_MANY = 5\n", USE)
    return folder


def insert(file: Path, after: str, row: str) -> None:
    before, found, rest = file.read_text().partition(after)
    assert found
    file.write_text(before + found + row + rest)


def output_of(copy: Path, *arguments: str, code: int) -> str:
    """Return the output of a command of the copy."""
    done = python("-m", "syncverify", *arguments, folder=copy, PYTHONPATH=str(copy))
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long(20)
def test_a_property_is_a_function_a_row_for_its_cause_and_a_defect(copy: Path) -> None:
    line = output_of(copy, "bank", "--only", "broadcasts-in-wait", code=0)
    assert "nothing_is_broadcast" in line


@pytest.mark.long(20)
def test_a_format_is_a_row_and_a_writer_and_a_cause_has_its_hint(copy: Path) -> None:
    subject = "syncverify.subjects.bugbank.layout:BroadcastsInWait"
    limits = ("--examples", "4", "--seed", "0", "--no-beyond", "--stop-at-first")
    report = output_of(copy, "run", subject, *limits, "--format", "terse", code=1)
    assert (
        "VIOLATION: nothing_is_broadcast (sent)\n  No rank issues a broadcast."
        in report
    )
    assert "hint:       send parameters once, in bind()" in report
    assert "\nTERSE nothing_is_broadcast (sent)\n" in report


@pytest.mark.long(20)
def test_a_subject_is_one_file_and_a_feature_a_row_and_at_most_a_function(
    copy: Path,
) -> None:
    """Two features are drawn, played by the subject, judged, and counted by the coverage."""
    (copy / "new.toml").write_text(
        'right = ["use=negated_twice", "event=wait_thrice"]\n'
    )
    limits = ("--examples=20", "--seed=0", "--no-beyond", "--contract=new.toml")
    output_of(copy, "run", "views", *limits, "--json", "report.json", code=0)
    report = json.loads((copy / "report.json").read_text())
    assert report["subject"] == "views"
    coverage = report["coverage"]
    assert coverage["use"]["negated_twice"] > 0
    assert coverage["event"]["wait_thrice"] > 0
