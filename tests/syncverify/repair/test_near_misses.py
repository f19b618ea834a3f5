"""Slips of the pen, as text."""

import ast

import pytest

from syncverify.repair.near_misses import near_misses, other_assignments, siblings_in


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("a < b", "a <= b"),
        ("not a", "a"),
        ("x.copy_(y)", "x.add_(y)"),
        ("x.copy_(y)", "y.copy_(x)"),
        ("x[0]", "x[-1]"),
        ("x[-1]", "x[0]"),
        ("dist.ReduceOp.MAX", "dist.ReduceOp.SUM"),
        ("dist.ReduceOp.SUM", "dist.ReduceOp.AVG"),
        ("dist.reduce(x, 0, group=g)", "dist.all_reduce(x, group=g)"),
        (
            "dist.all_reduce(x, group=g)",
            "dist.all_reduce(x, op=dist.ReduceOp.AVG, group=g)",
        ),
        ("torch.cuda.device_count()", "dist.get_world_size()"),
        ("lambda p: self.f(bucket, p)", "lambda p, bucket=bucket: self.f(bucket, p)"),
    ],
)
def test_a_slip_has_its_candidate(wrong: str, right: str) -> None:
    inner = ast.parse(wrong, mode="eval").body
    assert right in [ast.unparse(each) for each in near_misses(inner, {})]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("start = part.numel()", ["start += part.numel()"]),
        ("start += size", ["start = size"]),
        ("self.n += 1", []),
        ("self.hooks = [handle]", ["self.hooks.append(handle)"]),
        ("x[p] = g.clone()", ["x[p].copy_(g.clone())"]),
        ("x = 0", []),
    ],
)
def test_an_assignment_has_its_candidates(wrong: str, right: list[str]) -> None:
    (node,) = ast.parse(wrong).body
    assert [*other_assignments(node)] == right


def test_attributes_with_a_similar_name_stand_for_each_other() -> None:
    text = """
class A:
    def f(self):
        return self.dp_group, self.tp_group, self.num_ranks, self.send_group()

    def send_group(self): ...
"""
    siblings = siblings_in([ast.parse(text)])
    assert siblings["dp_group"] == ["tp_group"]
    assert siblings["num_ranks"] == []
    (attribute,) = [
        ast.unparse(each)
        for each in near_misses(ast.parse("self.dp_group", mode="eval").body, siblings)
    ]
    assert attribute == "self.tp_group"
