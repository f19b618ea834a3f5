"""Long lists are cut, single lines are not."""

from syncverify.report.fitting import fitted


def lines(count: int) -> list[str]:
    return [f"  line {number}" for number in range(count)]


def test_the_longest_lists_are_cut_first() -> None:
    cut = fitted(["title", lines(50), lines(4), "end"], num_lines=12)
    assert cut == ["title", *lines(5), "  ... and 45 more", *lines(4), "end"]
    assert len(cut) == 12


def test_each_list_keeps_its_first_lines() -> None:
    cut = fitted([lines(50)] * 3, num_lines=3)
    assert cut == [*lines(2), "  ... and 48 more"] * 3
