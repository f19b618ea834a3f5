"""The result of a search for violations of one peer."""

import sys
from dataclasses import dataclass
from importlib.metadata import version

from studies.peers.roster import Peer
from studies.rows import today
from syncverify.backends.choice import AnyBackend
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.settings import Settings
from syncverify.subjects.subject import Subject
from syncverify.verification.reported_search import run_search

RANKS = 4


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One row of the table of runs in docs/findings.md.

    Attributes:
        subject: Name of the peer.
        backend: Name of the backend.
        examples: Scenarios played.
        num_properties: Number of all properties; those that apply to a scenario are judged.
        violations: Violations, as `property (cause)`.
        tokens: Replay tokens of the violations, in the same order.
        seconds: Duration.
        release: Version of the peer's package.
        torch: Version of torch.
        python: Version of Python, such as "3.12".
        date: Day of the run.
    """

    subject: str
    backend: str
    examples: int
    num_properties: int
    violations: tuple[str, ...]
    tokens: tuple[str, ...]
    seconds: float
    release: str
    torch: str
    python: str
    date: str

    def has_unknown_violation(self, known: frozenset[str]) -> bool:
        """Tell whether there is a violation besides the known ones."""
        return not known.issuperset(self.violations)


def play(
    subject: Subject, peer: Peer, backend: AnyBackend, examples: int, seed: int
) -> PeerResult:
    """Search for violations of a peer.

    Args:
        subject: The peer as a subject.
        peer: The peer.
        backend: The backend.
        examples: Scenarios to play.
        seed: Same seed, same scenarios.

    Returns:
        The row of the table.
    """
    settings = Settings(ranks=RANKS, examples=examples, seed=seed)
    report = run_search(subject, backend, settings)
    found = [each.violation for each in report.violations]
    return PeerResult(
        subject=subject.name,
        backend=backend.name,
        examples=report.examples,
        num_properties=len(ALL_PROPERTIES),
        violations=tuple(
            f"{violation.property} ({violation.cause})" for violation in found
        ),
        tokens=tuple(each.token for each in report.violations),
        seconds=round(report.seconds, 1),
        release=_version(peer.package),
        torch=_version("torch"),
        python=".".join(map(str, sys.version_info[:2])),
        date=today(),
    )


def _version(package: str) -> str:
    """Return the installed version of a package, without a build number."""
    return version(package).partition("+")[0]
