"""The smallest scenario that shows each defect of the bank, found once and kept."""

from __future__ import annotations

import json
from pathlib import Path

from comparison.cases import Case
from syncverify.backends.sim import SimBackend
from syncverify.bank_command.play import Budget, Player
from syncverify.bugbank.entry import Entry
from syncverify.properties import check
from syncverify.properties.determinism import subject_is_deterministic
from syncverify.replay import Recording, decode
from syncverify.sim.decisions import Decisions, Following

KEPT = Path(__file__).with_name("smallest.json")


class SmallestScenarios:
    """Tokens of scenarios, by id of the entry, in a file.

    Args:
        path: JSON; made when the first one is found.
    """

    def __init__(self, path: Path = KEPT) -> None:
        self._path = path
        self._tokens: dict[str, str] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        )

    def case(self, entry: Entry) -> Case | None:
        """Return an entry with its scenario, looking for one if none is known any more.

        Args:
            entry: Of the bank.

        Returns:
            The case; None if nothing was found.
        """
        recording = self._kept(entry) or self._found(entry)
        if recording is None:
            return None
        return Case(
            entry.id,
            entry.section,
            entry.silent,
            entry.defect(),
            entry.fixed(),
            recording,
        )

    def _kept(self, entry: Entry) -> Recording | None:
        token = self._tokens.get(entry.id)
        if token is None:
            return None
        recording = decode(token)
        return recording if _still_shows(recording, entry) else None

    def _found(self, entry: Entry) -> Recording | None:
        caught = Player(SimBackend(), Budget(twin_examples=0)).play(entry).caught
        if caught is None:
            return None
        self._tokens[entry.id] = caught.token
        text = json.dumps(self._tokens, indent=1, sort_keys=True)
        self._path.write_text(text + "\n", encoding="utf-8")
        return decode(caught.token)


def _still_shows(recording: Recording, entry: Entry) -> bool:
    if recording.property == subject_is_deterministic.__name__:
        return True  # one run cannot tell
    subject, decisions = entry.defect(), Decisions(Following(recording.schedule))
    run = SimBackend().run_scheduled(recording.scenario, subject, decisions)
    found = check(recording.scenario, run, subject.capabilities)
    wanted = (recording.property, recording.cause)
    return any(violation.identity == wanted for violation in found)
