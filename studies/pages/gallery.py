"""The page of ten defects of ten kinds, each with the diagnosis that a user reads.

Run `python -m studies.pages.gallery` to write it. The scenarios are those of the bank's results. With a
folder, `python -m studies.pages.gallery FOLDER` also writes the HTML report of each there and takes the
pictures anew, by Chromium and by `cwebp`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from studies.documents import Document, write_part
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.bugbank.entry import Entry
from syncverify.one_play import PlayedScenario, play
from syncverify.report.html.page import page_model
from syncverify.report.html.render import rendered
from syncverify.report.report import Report
from syncverify.report.text import SMALLEST, violation_text
from syncverify.scenario.token import decode
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import shown_again

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "docs" / "pictures" / "gallery"
_FIGURES: Final = ROOT / "studies" / "results" / "bug-bank.json"
# One defect of each kind, from numbers over calls to memory.
SHOWN: Final = {
    "A wrong factor": "avg-divides-by-numel",
    "Ranks left out": "dp-group-ignores-sequence-parallel",
    "A sum that is rounded": "low-precision-accumulator",
    "A micro-batch that is lost": "accumulator-reset-each-backward",
    "A reduction that comes too early": "sync-first-instead-of-last",
    "A bucket that is never sent": "last-bucket-not-flushed",
    "Collectives that do not match": "set-iteration-order",
    "A hang": "cross-group-collective-order",
    "A race": "final-join-missing",
    "Memory that is freed too early": "missing-record-stream",
}
# Pixels; the part of a page that shows the diagnosis and the timeline.
_WIDTH: Final = 1100
_HEIGHT: Final = 1300


def page(folder: Path | None = None) -> str:
    """Return the ten diagnoses; write the HTML reports into a folder, if there is one."""
    return "\n".join(diagnosis_of(kind, folder) for kind in SHOWN)


def diagnosis_of(kind: str, folder: Path | None = None) -> str:
    """Play the defect of a kind, and return its part of the page."""
    rows = json.loads(_FIGURES.read_text(encoding="utf-8"))["entries"]
    tokens = {row["id"]: row["caught"]["token"] for row in rows if row["caught"]}
    entry = entry_of(SHOWN[kind])
    played, found = _found(entry, tokens[entry.name])
    if folder is not None:
        html = rendered(_model(entry, played, found))
        (folder / f"{entry.name}.html").write_text(html, encoding="utf-8")
    return "\n".join(_part(kind, entry, played, found))


def _part(
    kind: str, entry: Entry, played: PlayedScenario, found: FoundViolation
) -> Iterator[str]:
    project, _, number = entry.source.partition("#")
    link = f"https://github.com/{project}/issues/{number}"
    text = violation_text(
        found,
        subject=_path(entry),
        backend=played.backend,
        scenario_title=SMALLEST,
    )
    yield f"## {kind}\n"
    yield f"{entry.mechanism} `{entry.name}`, reported in [{entry.source}]({link}).\n"
    yield f"```text\n{text}\n```\n"
    yield f"![{kind}: its report page](pictures/gallery/{entry.name}.webp)\n"


def _path(entry: Entry) -> str:
    return f"{entry.subject.__module__}:{entry.subject.__qualname__}"


def _found(entry: Entry, token: str) -> tuple[PlayedScenario, FoundViolation]:
    """Play an entry's smallest scenario, and return its violation."""
    reproducer = decode(token)
    played = play(
        reproducer.scenario,
        _path(entry),
        contract=entry.defect().capabilities,
        schedule=reproducer.schedule,
    ).diagnosed()
    identity = (reproducer.property, reproducer.cause)
    (found,) = (v for v in played.violations if v.violation.identity == identity)
    return played, found


def _model(entry: Entry, played: PlayedScenario, found: FoundViolation) -> Any:
    """Return the model of the HTML report of one violation."""
    subject = entry.defect()
    contract = subject.capabilities.in_words()
    name, backend = _path(entry), played.backend
    report = Report(
        subject=name,
        backend=backend,
        seed=0,
        examples=1,
        seconds=0.0,
        coverage={},
        violations=(found,),
        contract=contract,
        is_replay=True,
    )
    run = shown_again(found, subject, SimBackend())
    return page_model(report, subject.capabilities, [run])


def take_pictures(folder: Path) -> None:
    """Take the picture of each HTML report of a folder."""
    PICTURES.mkdir(exist_ok=True)
    for entry_id in SHOWN.values():
        shot = folder / f"{entry_id}.png"
        subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                f"--window-size={_WIDTH},{_HEIGHT}",
                f"--screenshot={shot}",
                (folder / f"{entry_id}.html").absolute().as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        small = PICTURES / f"{entry_id}.webp"
        subprocess.run(
            ["cwebp", "-quiet", "-lossless", "-q", "100", "-m", "6", shot, "-o", small],
            check=True,
        )


PAGE: Final = Document("docs/gallery.md", page, "defects")

if __name__ == "__main__":
    write_part(PAGE.file, PAGE.part, page(*map(Path, sys.argv[1:])))
    for each in map(Path, sys.argv[1:]):
        take_pictures(each)
