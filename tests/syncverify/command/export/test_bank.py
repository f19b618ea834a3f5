"""Exported scripts show the wrong numbers of the bug bank where torch alone is installed."""

from dataclasses import replace
from pathlib import Path

import pytest

from studies.bank_rows import caught
from syncverify.command.export.execution import reproduction_of, write_and_try
from syncverify.command.export.script import Reproduction
from syncverify.command.export.subject_text import subject_text
from syncverify.errors import UsageError
from syncverify.scenario.replay_token import decode
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.subject import Subject
from tests.syncverify.command.export.test_script import verdicts

ROOT = Path(__file__).parents[4]
CAUGHT = caught()
# Properties of numbers: the others are about calls, order and memory.
OF_VALUES = {
    "accumulation_is_local_until_reduced",
    "gradient_equals_reference",
    "unreduced_stay_local",
    "zero_grad_clears",
}
WRONG_NUMBERS = [
    entry.name for entry in entries() if CAUGHT[entry.name].property in OF_VALUES
]

# The reduction comes too early, and no gradient that is read has a wrong number.
WITHOUT_NUMBER = {"no-sync-loop-break"}
SHOWN = [each for each in WRONG_NUMBERS if each not in WITHOUT_NUMBER]
# The right synchronizer refuses the scenario by an exception, which its contract allows.
REFUSED_WHEN_RIGHT = {"param-storage-swapped-after-bind"}
QUICK = {
    "avg-divides-by-numel",
    "buffer-borrowed-not-zeroed",
    "create-graph-detaches-view",
    "reduce-scatter-storage-order",
    "step-without-last-micro-batch",
}


def reproduction(entry_id: str, subject: Subject) -> Reproduction:
    """Return the reproduction of a defect, with another subject in its place."""
    defect = entry_of(entry_id).defect()
    found = reproduction_of(decode(CAUGHT[entry_id].token), defect, ROOT)
    return replace(found, subject=subject_text(subject, ROOT))


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry_id",
    [
        pytest.param(each, marks=[] if each in QUICK else pytest.mark.nightly)
        for each in SHOWN
    ],
)
def test_script_is_wrong_with_the_defect_and_right_with_its_twin(entry_id: str) -> None:
    entry = entry_of(entry_id)
    num_ranks = decode(CAUGHT[entry_id].token).scenario.mesh.num_ranks
    expected = {entry.defect(): False}
    if entry_id not in REFUSED_WHEN_RIGHT:
        expected[entry.fixed()] = True
    for subject, is_right in expected.items():
        text = reproduction(entry_id, subject).text(without_streams=False)
        assert all(verdicts(text, num_ranks)) == is_right, text


# What the harness requires and neither torch nor a subject: a script has to do without.
OF_HARNESS = ("click", "cloudpickle", "hypothesis", "psutil", "rich", "slipcover")


@pytest.mark.nightly
@pytest.mark.parametrize("entry_id", SHOWN)
def test_script_shows_the_wrong_number_with_torch_alone(
    entry_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OF_HARNESS:
        (tmp_path / f"{name}.py").write_text("raise ModuleNotFoundError(__name__)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    reproducer = decode(CAUGHT[entry_id].token)
    found = reproduction_of(reproducer, entry_of(entry_id).defect(), tmp_path)
    trial = write_and_try(found, tmp_path / "script.py")
    assert trial.shows_wrong_gradient, f"{trial.last_words}\n{trial.complaint}"


@pytest.mark.slow
@pytest.mark.parametrize("entry_id", sorted(WITHOUT_NUMBER))
def test_a_defect_without_a_wrong_number_is_refused(
    entry_id: str, tmp_path: Path
) -> None:
    reproducer = decode(CAUGHT[entry_id].token)
    with pytest.raises(UsageError, match="leaves no wrong number in a gradient"):
        reproduction_of(reproducer, entry_of(entry_id).defect(), tmp_path)
