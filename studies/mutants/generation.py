"""All mutants of the synchronizer: the mistake, its place, and the changed file."""

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.mutants import ordering, state
from studies.mutants.edits import Edit, Operator
from studies.mutants.source import Source
from studies.mutants.targets import TARGETS

PACKAGE = Path(__file__).parents[2] / "synchronizer"

OPERATORS: tuple[Operator, ...] = (
    ordering.drop_wait, ordering.late_wait, ordering.wrong_stream, ordering.swap_order,
    ordering.rank_dependent_order, ordering.early_free, state.skip_zero, state.stale_view,
    state.lose_accumulation, state.drop_reset, state.drop_hook_removal,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """The synchronizer with one mistake.

    Attributes:
        id: Made of the mistake, the file, the function, the old and the new text. It stays
            the same where the code moves inside the file.
        operator: Name of the mistake.
        path: File, relative to the package.
        line: Line number, from 1.
        removed: The old lines.
        added: The new lines.
        text: The whole file with the mistake.
    """

    id: str
    operator: str
    path: Path
    line: int
    removed: str
    added: str
    text: str

    @property
    def place(self) -> str:
        """File and line of the mistake."""
        return f"{PACKAGE.name}/{self.path.as_posix()}:{self.line}"

    @property
    def diff(self) -> str:
        """The change as a diff without context."""
        removed = (f"- {line}" for line in self.removed.splitlines())
        added = (f"+ {line}" for line in self.added.splitlines())
        return "\n".join((*removed, *added))


def mutants(package: Path = PACKAGE) -> list[Mutant]:
    """Put every mistake into every place where it can be made.

    Args:
        package: The synchronizer's folder.

    Returns:
        The mutants, in the order of files and lines.
    """
    found: list[Mutant] = []
    for module in TARGETS:
        path = Path(f"{module}.py")
        source = Source(path, (package / path).read_text(encoding="utf-8"))
        found += sorted(_of_file(source), key=lambda mutant: mutant.line)
    return found


def unchanged() -> Mutant:
    """Return the synchronizer without a mistake, which has to survive."""
    path = Path("synchronizer.py")
    text = (PACKAGE / path).read_text(encoding="utf-8")
    return Mutant(
        id="unchanged",
        operator="none",
        path=path,
        line=1,
        removed="",
        added="",
        text=text,
    )


def _of_file(source: Source) -> Iterator[Mutant]:
    seen: Counter[str] = Counter()
    texts: set[str] = set()
    for scope, node in source.places():
        for operator in OPERATORS:
            for edit in operator(source, scope, node):
                made = _made(source, operator.__name__, scope, edit, seen)
                # Two operators may make the same text: the first one keeps it.
                if made.text not in texts:
                    texts.add(made.text)
                    yield made


def _made(
    source: Source, operator: str, scope: str, edit: Edit, seen: Counter[str]
) -> Mutant:
    text = source.text
    start, end = source.start(edit.first), source.end(edit.last or edit.first)
    mutated = text[:start] + edit.text + text[end:]
    content = f"{operator} {scope} {text[start:end]} {edit.text}"
    seen[content] += 1
    digest = hashlib.sha256(f"{content} {seen[content]}".encode()).hexdigest()[:8]
    line_start = text.rfind("\n", 0, start) + 1
    rest = len(text) - text.find("\n", end)
    return Mutant(
        f"{operator}-{source.path.stem}-{digest}",
        operator,
        source.path,
        edit.first.lineno,
        removed=text[line_start : len(text) - rest],
        added=mutated[line_start : len(mutated) - rest],
        text=mutated,
    )


def drawn(chosen: Sequence[Mutant], number: int) -> list[Mutant]:
    """Return a number of mutants, the same ones for the same mutants."""
    order = [*chosen]
    random.Random(0).shuffle(order)
    return order[:number]
