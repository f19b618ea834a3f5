"""A round of all pairs, in a file."""

from pathlib import Path

from studies.timemachine.round import Round


def test_a_cut_off_round_goes_on_with_the_sides_not_yet_played(tmp_path: Path) -> None:
    Round(tmp_path / "round.json").add("a", "bad")
    again = Round(tmp_path / "round.json")
    assert again.has("a", "bad")
    assert not again.has("a", "good")


def test_a_round_that_ended_has_played_nothing(tmp_path: Path) -> None:
    played = Round(tmp_path / "round.json")
    played.add("a", "bad")
    played.end()
    assert not played.has("a", "bad")
