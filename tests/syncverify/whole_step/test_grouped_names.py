"""Names of parameters, those of equal layers as one."""

import pytest

from syncverify.whole_step.grouped_names import some_names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a.weight", "b.weight"], "a.weight, b.weight"),
        ([f"b.{i}.norm.weight" for i in (0, 1, 2, 5)], "b.{0-2,5}.norm.weight"),
        (["3.weight", "3.bias"], "3.weight, 3.bias"),
        (["b.1.experts.0", "b.1.experts.1"], "b.1.experts.0, b.1.experts.1"),
        (
            [f"b.{i}.{j}" for i in (0, 1) for j in "abcd"],
            "b.{0-1}.a, b.{0-1}.b, and 4 more",
        ),
    ],
)
def test_names_that_differ_in_the_layer_number_are_one(
    names: list[str], text: str
) -> None:
    assert some_names(names, 2) == text
