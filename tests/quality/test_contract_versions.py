"""A contract means the values of one version of the feature table; later ones are beyond it."""

from pathlib import Path

import pytest

from syncverify.command.verification.verify import verify
from syncverify.errors import UsageError
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, TABLE_VERSION
from syncverify.search.observation import Observing, observe
from syncverify.subjects.contract_choice import contract_text, read_contract
from syncverify.subjects.subject import resolve
from tests.quality.planted.graphs import RefusesLateWrites

READS = Feature("backward", "hook_reads_grad")
FIRST = Capabilities(table_version=1, right=frozenset({"backward"}))


def test_a_topic_of_a_contract_means_the_values_of_its_version() -> None:
    today = Capabilities(right=frozenset({"backward"}))
    assert today.covers(*READS)
    assert not FIRST.covers(*READS)
    assert FIRST.covers("backward", "inputs")
    named = Capabilities(table_version=1, right=frozenset({"backward", str(READS)}))
    assert named.covers(*READS)


def test_a_file_without_a_version_means_the_first(tmp_path: Path) -> None:
    (file := tmp_path / "contract.toml").write_text('right = ["backward"]\n')
    assert not read_contract(file, Capabilities()).covers(*READS)
    file.write_text(f'table_version = {TABLE_VERSION}\nright = ["backward"]\n')
    assert read_contract(file, Capabilities()).covers(*READS)
    assert f"table_version = {TABLE_VERSION}\n" in contract_text(
        Capabilities(), comments={}
    )


@pytest.mark.parametrize("version", [0, TABLE_VERSION + 1])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(UsageError, match="expected `table_version` of a contract as 1"):
        Capabilities(table_version=version)


@pytest.mark.long
def test_a_base_that_was_silent_is_not_accused_of_a_newer_value(tmp_path: Path) -> None:
    """The class breaks `backward=hook_reads_grad`, which its contract names by the topic."""
    others = [
        str(each)
        for each in FEATURES
        if each.topic == "backward" and each not in {READS, ("backward", "inputs")}
    ]
    text = f'varying_accumulations = true\nright = ["backward"]\noutside = {others}\n'
    (file := tmp_path / "contract.toml").write_text(text)
    report = verify(RefusesLateWrites, contract=file, examples=10, ranks=2, seed=0)
    assert any(str(READS) in line for line in report.explored)
    subject, plan = resolve(RefusesLateWrites, file), Observing(3, 0, max_ranks=2)
    (rated,) = observe(subject, SimBackend(), plan, [str(READS)])
    assert rated.rating == "wrong"
