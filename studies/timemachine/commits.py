"""The list of repairs that pairs are chosen from: commits of three histories, by a rule.

    python -m studies.timemachine.commits FOLDER...

FOLDER is a git directory of one of the repositories, such as a mirror; its newest commit bounds the
list. The rule is `REPOSITORIES`, `SINCE`, `WORDS` and `CLASSES`, and the page says it.
"""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

import click

from syncverify.command.process_exit import run_command

STORED: Final = Path(__file__).with_name("commits.csv")
SINCE: Final = "2025-08-01"
WORDS: Final = re.compile(
    r"(?<!pre)(?<!suf)fix|\brac(?:e|es|y)\b|wrong|incorrect|corrupt", re.IGNORECASE
)
# The first class of which a word occurs in the subject counts, or else `other`.
CLASSES: Final = {
    "norm": re.compile(r"norm|clip", re.IGNORECASE),
    "scale": re.compile(
        r"scal(?:e|ing|er)|divi|averag|(?:aux|z).?loss|loss (?:comput|accum)",
        re.IGNORECASE,
    ),
    "order": re.compile(
        r"\brac(?:e|es|y)\b|stream|hang|deadlock|overlap|sync|\bwait|order|lifetime|event|"
        r"use.after.free|in.flight",
        re.IGNORECASE,
    ),
    "gradient": re.compile(r"grad|reduc|backward|accumul", re.IGNORECASE),
}
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Repository:
    """A history, and its paths that count.

    Attributes:
        name: Owner and name.
        tags: Form of the tags of releases; its group is the version.
        paths: Gradient and parallelism paths.
    """

    name: str
    tags: re.Pattern[str]
    paths: tuple[str, ...]


REPOSITORIES: Final = (
    Repository(
        "NVIDIA/Megatron-LM",
        re.compile(r"core_v(\d+\.\d+\.\d+)"),
        (
            "megatron/core/distributed",
            "megatron/core/optimizer",
            "megatron/core/pipeline_parallel",
            "megatron/core/tensor_parallel",
            "megatron/core/transformer/moe",
            "megatron/core/transformer/cuda_graphs.py",
            "megatron/core/extensions",
            "megatron/core/parallel_state.py",
            "megatron/core/process_groups_config.py",
        ),
    ),
    Repository(
        "deepspeedai/DeepSpeed",
        re.compile(r"v(\d+\.\d+\.\d+)"),
        (
            "deepspeed/runtime",
            "deepspeed/comm",
            "deepspeed/compile",
            "deepspeed/module_inject",
            "deepspeed/moe",
            "deepspeed/pipe",
            "deepspeed/sequence",
        ),
    ),
    Repository(
        "pytorch/torchtitan",
        re.compile(r"v(\d+\.\d+\.\d+)"),
        (
            "torchtitan/distributed",
            "torchtitan/train.py",
            "torchtitan/trainer.py",
            "torchtitan/components/loss.py",
            "torchtitan/components/optimizer.py",
            "torchtitan/components/optimizer",
            "torchtitan/models/*parallelize.py",
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the rule.

    Attributes:
        repository: Owner and name.
        commit: The first 10 digits of its hash.
        date: Day on which it was committed.
        kind: Class of the defect, from the words of the subject alone.
        before: Last release without it.
        after: First release with it; empty if the history has none yet.
        subject: Its first line.
    """

    repository: str
    commit: str
    date: str
    kind: str
    before: str
    after: str
    subject: str


@dataclass(frozen=True, slots=True)
class _History:
    """A git directory."""

    folder: Path

    def lines(self, *arguments: str) -> list[str]:
        """Return the lines that git prints."""
        command = ("git", "-C", str(self.folder), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def subjects(self, tip: str) -> frozenset[str]:
        """Return subjects of commits up to `tip`; a commit picked for a release keeps its own."""
        return frozenset(self.lines("log", f"--since={SINCE}", "--format=%s", tip))

    def releases(self, tags: re.Pattern[str]) -> dict[str, frozenset[str]]:
        """Return the subjects in each release, the oldest release first."""
        found = [m for tag in self.lines("tag") if (m := tags.fullmatch(tag))]
        found.sort(key=lambda match: [int(part) for part in match[1].split(".")])
        return {match[1]: self.subjects(match[0]) for match in found}


def kind_of(subject: str) -> str:
    """Return the class of a subject."""
    found = (kind for kind, words in CLASSES.items() if words.search(subject))
    return next(found, OTHER)


def commits_of(repository: Repository, folder: Path) -> Iterator[Commit]:
    """Yield the commits of the rule, the newest first."""
    history = _History(folder)
    releases = history.releases(repository.tags)
    log = ("log", f"--since={SINCE}", "--no-merges", "--format=%h%x09%cs%x09%s")
    for line in history.lines(*log, "--abbrev=10", "HEAD", "--", *repository.paths):
        commit, date, subject = line.split("\t", 2)
        if WORDS.search(subject):
            before, after = _around(subject, releases)
            kind = kind_of(subject)
            yield Commit(
                repository=repository.name,
                commit=commit,
                date=date,
                kind=kind,
                before=before,
                after=after,
                subject=subject,
            )


def _around(subject: str, releases: dict[str, frozenset[str]]) -> tuple[str, str]:
    """Return the last release without a commit, and the first one with it."""
    before = ""
    for release, subjects in releases.items():
        if subject in subjects:
            return before, release
        before = release
    return before, ""


def stored() -> list[Commit]:
    """Return the stored list."""
    with STORED.open(encoding="utf-8", newline="") as file:
        return [Commit(**row) for row in csv.DictReader(file)]


def counts() -> Iterator[tuple[str, ...]]:
    """Yield the number of commits of each class, one row a repository."""
    number = Counter((each.repository, each.kind) for each in stored())
    for repository in REPOSITORIES:
        of_kinds = [number[repository.name, kind] for kind in (*CLASSES, OTHER)]
        yield repository.name, *map(str, of_kinds), str(sum(of_kinds))


@click.command()
@click.argument("folders", nargs=-1, required=True,
                type=click.Path(exists=True, file_okay=False, path_type=Path))  # fmt: skip
def main(folders: tuple[Path, ...]) -> None:
    """Read git directories, in the order of the repositories, and write the list."""
    with STORED.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(field.name for field in fields(Commit))
        for repository, folder in zip(REPOSITORIES, folders, strict=True):
            rows.writerows(map(astuple, commits_of(repository, folder)))
    click.echo(f"{len(stored())} commits: {STORED}")


if __name__ == "__main__":
    run_command(main, "python -m studies.timemachine.commits")
