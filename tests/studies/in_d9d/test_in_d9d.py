"""The study of our synchronizer in d9d: its copy, its job, its edits, and its stored result."""

import itertools
import sys

import pytest
import torch
from click.testing import CliRunner

from studies.in_d9d import cpu_copy, document, model, suite
from studies.in_d9d.__main__ import main
from studies.in_d9d.layouts import LAYOUTS
from studies.in_d9d.outcomes import outcome_of
from studies.in_d9d.trial import WHOSE, Trial
from syncverify.errors import UsageError

STORED = document.ROWS.read()
MISSING = "pip install d9d==0.24.0, which needs torch 2.14"


def test_the_stored_result_is_right_on_all_layouts() -> None:
    layouts = [row for row in STORED if row.part == document.TRAINER]
    assert {row.name for row in layouts} == {each.name for each in LAYOUTS}
    for row in layouts:
        assert row.gradients > 0, row.name
        assert (row.wrong, row.outcome) == (0, "ended"), row.name
    assert {row.outcome for row in STORED if row not in layouts} == {"passed"}


def test_the_copy_changes_the_literal_alone(tmp_path) -> None:
    path = tmp_path / "module.py"
    path.write_text('a = "cuda"\nb = torch.cuda\nc = f"cuda:{n}"\n')
    assert cpu_copy.rewrite(path) == 2
    assert path.read_text() == 'a = "cpu"\nb = torch.cuda\nc = f"cpu:{n}"\n'


def test_gradients_are_exact_in_each_order_of_micro_batches(monkeypatch) -> None:
    right = model.expected(4)
    pack = model.pack
    monkeypatch.setattr(model, "pack", lambda *given: pack(*given)[::-1])
    for ours, other in zip(right, model.expected(4), strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=0)
    assert any(gradient.any() for gradient in right[-1].values())


def test_steps_have_several_lengths_and_a_power_of_two_as_weight() -> None:
    lengths = [len(step) for step in model.STEPS]
    assert any(a < b for a, b in itertools.pairwise(lengths))
    assert any(a > b for a, b in itertools.pairwise(lengths))
    assert {sum(step) for step in model.STEPS} == {4}


@pytest.mark.parametrize("whose", WHOSE)
def test_a_wrong_gradient_is_counted(whose: str) -> None:
    layout = LAYOUTS[0]
    gradients = {each: [model.expected(2) for _ in range(2)] for each in WHOSE}
    assert outcome_of(Trial(layout, gradients)).is_right
    gradients[whose][1][3]["layers.2.bias"][0] += 2**-30
    found = outcome_of(Trial(layout, gradients))
    assert (found.wrong, found.wrong_of_d9d) == (whose == "ours", whose == "d9d")
    assert found.is_right == (whose == "d9d")


def test_a_trainer_that_did_not_end_is_not_right() -> None:
    assert not outcome_of(Trial(LAYOUTS[0], {}, "it raised")).is_right


TEST_FILE = """\
def test_steps():
    sums.bind()
    assert one.grad is None
    with pytest.raises(ValueError, match="not ready"):
        sums.wait()
    sums.unbind()
    assert one.grad is None
"""


def test_edits_keep_assertions_after_unbind() -> None:
    text, count = suite.edited(TEST_FILE)
    assert count == 2
    assert text.count(".grad is None") == 1
    assert text.endswith("    assert one.grad is None\n")
    assert "pytest.raises(BucketNotReadyError)" in text
    assert suite.edited("def test_other(): ...\n") == ("def test_other(): ...\n", 0)


def test_without_d9d_the_command_says_what_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "d9d", None)
    result = CliRunner().invoke(main, [])
    assert isinstance(result.exception, UsageError)
    assert "make in-d9d" in str(result.exception)


@pytest.mark.long
@pytest.mark.nightly
def test_the_trainer_of_d9d_is_right_with_ours() -> None:
    pytest.importorskip("d9d.loop.run", reason=MISSING)
    result = CliRunner().invoke(
        main, ["--only", "replicated, sleeps", "--only", "sharded"]
    )
    assert result.exit_code == 0, result.output
