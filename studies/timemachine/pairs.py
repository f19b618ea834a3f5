"""The table of pairs: a release with a defect, the release that repairs it, and the proof."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

FOLDER: Final = Path(__file__).parent
TABLE: Final = FOLDER / "pairs.toml"
RUN: Final = "run"
SIMULATE: Final = "simulate"


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of one file that a remedy replaces.

    Attributes:
        file: Path inside of the release.
        old: Text that the file contains once.
        new: Text in its place.
    """

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Pair:
    """One defect.

    Attributes:
        name: Name in the table and on the command line.
        package: Name on PyPI.
        bad: Version with the defect.
        good: First release that repairs it; empty if there is none.
        issue: Report or repair of the defect, as `owner/repository#number`; empty where the
            release that repairs it is all that tells.
        mechanism: The mistake, in one or two sentences.
        judge: The command: `run` searches with a subject; `simulate` plays programs with drawn
            arguments.
        subject: Name or path of the subject, or name of the program.
        backend: Backend on which both sides run.
        ranks: Largest world.
        violates: Property that the search has to find violated.
        cause: Cause that has to be found.
        place: File and line that the violation has to name; empty for values alone.
        contract: File with the contract, in the folder of the pairs; empty for the subject's.
        remedy: Edits of the buggy release that repair it, as the report proposes.
        after: Name of a pair whose defect hides this one, so that the release gets its remedy
            first; empty if there is none.
        part: Folder of the release that is laid over the installed package; empty for a whole
            release. Another release's part may need compiled code that the installed one lacks,
            so the newest release is not played.
    """

    name: str
    package: str
    bad: str
    mechanism: str
    issue: str = ""
    good: str = ""
    judge: str = RUN
    subject: str = ""
    backend: str = "sim"
    ranks: int = 4
    violates: str = ""
    cause: str = ""
    place: str = ""
    contract: str = ""
    remedy: tuple[Edit, ...] = field(default=())
    after: str = ""
    part: str = ""

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        """Read an entry of the table."""
        remedy = tuple(Edit(**edit) for edit in entry.get("remedy", ()))
        return cls(**{**entry, "remedy": remedy})

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the sides to play, the one with the defect first.

        Of a defect that a release repairs, the newest release is a side as well.
        """
        newest = () if self.part else ("newest",)
        good = ("good", *newest) if self.good else ()
        repaired = ("repaired",) if self.remedy else ()
        return ("bad", *good, *repaired)

    @property
    def judged_by(self) -> str:
        """Return the judge of the pair, as the page says it."""
        return f"{self.judge}, {self.backend}" if self.judge == RUN else self.judge

    @property
    def link(self) -> str:
        """Return the issue as a link of Markdown, or else the release that repairs it."""
        if not self.issue:
            page = f"https://pypi.org/project/{self.package}/{self.good}/"
            return f"[{self.package} {self.good}]({page})"
        repository, number = self.issue.split("#")
        return f"[{self.issue}](https://github.com/{repository}/issues/{number})"


@dataclass(frozen=True, slots=True)
class Table:
    """All pairs, and the packages that releases import.

    Attributes:
        pairs: Pairs, in the order of the page.
        imports: Requirements by the name of the package that imports them.
    """

    pairs: tuple[Pair, ...]
    imports: dict[str, list[str]]

    def __getitem__(self, name: str) -> Pair:
        """Return the pair of a name."""
        return next(pair for pair in self.pairs if pair.name == name)


def table(file: Path = TABLE) -> Table:
    """Read the table of pairs."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    return Table(tuple(map(Pair.of, content["pair"])), content["imports"])
