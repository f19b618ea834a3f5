"""The example with a mistake of wiring."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

from examples import parity_gpt
from syncverify.whole_step import playing
from syncverify.whole_step.causes import LacksSum
from syncverify.whole_step.described import described
from syncverify.whole_step.parity import comparisons

# The models, the layout, one smaller training, and the smaller one once more.
_MESH_PLAYS_OF_A_MISTAKE = 4


@dataclass
class _Plays:
    """Numbers of ranks of the plays."""

    played: list[int] = field(default_factory=list)

    def counted(self, play: Any) -> Any:
        """Return the function that plays, counted."""

        def playing_counted(program: Any, ranks: int, device: Any) -> Any:
            self.played.append(ranks)
            return play(program, ranks, device=device)

        return playing_counted

    @property
    def on_meshes(self) -> int:
        """Number of plays on several ranks."""
        return sum(ranks > 1 for ranks in self.played)


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> _Plays:
    """All plays of the test."""
    found = _Plays()
    for name in ("simulate", "simulate_for_values"):
        monkeypatch.setattr(playing, name, found.counted(getattr(playing, name)))
    return found


@pytest.mark.long
def test_norms_of_heads_lack_a_sum(plays: _Plays) -> None:
    *_, last = comparisons(described(parity_gpt))
    (mistake,) = last.mistakes
    assert mistake.finding.cause == LacksSum(frozenset({"tp"}))
    assert str(mistake.layout) == "dp=1,tp=2"
    assert (mistake.sizes, mistake.num_rows) == ((("layers", 1),), 1)
    assert [each.name for each in mistake.finding.differences] == [
        "blocks.0.attention.q_norm.weight",
        "blocks.0.attention.k_norm.weight",
    ]
    assert plays.on_meshes == _MESH_PLAYS_OF_A_MISTAKE


def _repaired(model: Any, mesh: Any) -> None:
    norm = SequenceParallel(sequence_dim=2, use_local_output=True)
    plan = {"attention.q_norm": norm, "attention.k_norm": norm}
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
    parity_gpt.parallelize(model, mesh)


@pytest.mark.long
def test_a_right_training_is_played_once(plays: _Plays) -> None:
    found = described(parity_gpt)
    training = replace(found.training, parallelize=_repaired)
    *_, last = comparisons(replace(found, training=training))
    assert last.is_right, str(last)
    # The check, the models, one rank, and the layout: no value needs rounding noise. No norm
    # reaches `clip`, so gradients of ones are played, and larger ones.
    assert plays.played == [1, 4, 1, 4, 4, 4]
