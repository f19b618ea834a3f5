"""Each wait between streams in the synchronizer is needed, and missed by name if it goes.

Every edge has a training program that is legal with it. One statement is taken out of the
synchronizer; then the simulated machine finds that nothing orders two uses of memory,
says which wait would, and where.
"""

import ast
import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify import synchronizer
from syncverify.judge.ordering.remedies import disorders
from syncverify.sim.machine import SimulatedMachine
from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig
from syncverify.synchronizer.contract import arguments
from syncverify.trace.records import Moment, Phase

PACKAGE = Path(synchronizer.__file__).parent
WAITS = {"release_to", "wait_for", "wait_stream"}


class Training:
    """One rank's training, two parameters in a bucket, and streams beside the default."""

    def __init__(self, recorder: Any, *, sharded: bool, **config: Any) -> None:
        self.recorder = recorder
        mesh = init_device_mesh("cpu", (2,))
        placement = [Shard(0) if sharded else Replicate()]
        self.parameters = [
            nn.Parameter(DTensor.from_local(torch.ones(3), mesh, placement))
            for _ in range(2)
        ]
        self.other, self.third = torch.cuda.Stream(), torch.cuda.Stream()
        config = SynchronizerConfig(rebuild=False, **config)
        self.synchronizer = GradientSynchronizer([self.parameters], 1, 1, config=config)

    def call(self, phase: Phase, function: Callable[[], Any]) -> None:
        with self.recorder.calling(Moment(phase, 0)):
            function()

    def begin(self) -> None:
        self.call("bind", self.synchronizer.bind)
        self.call("backward", self.backward)

    def backward(self) -> None:
        torch.stack([p.to_local().sum() for p in self.parameters]).sum().backward()

    def wait(self, **options: Any) -> None:
        self.call("wait", lambda: self.synchronizer.wait(**options))

    def zero_grad(self) -> None:
        self.call("zero_grad", self.synchronizer.zero_grad)

    def scale_grads(self) -> None:
        self.call("wait", lambda: self.synchronizer.scale_grads(2.0))

    def unbind(self) -> None:
        self.call("unbind", self.synchronizer.unbind)

    def read(self) -> None:
        """Use gradients, as an optimizer does, on the current stream."""
        gradients = [p.grad for p in self.parameters]
        self.recorder.read("optimizer", [g for g in gradients if g is not None])


def reduces(training: Training) -> None:
    training.begin()
    training.wait()
    training.read()
    training.zero_grad()
    training.unbind()


def scales_by_a_tensor(training: Training) -> None:
    training.begin()
    with training.recorder.calling(Moment("backward", 0)):
        scale = torch.ones(()) / 2
    training.wait(scale=scale)
    training.unbind()


def waits_elsewhere(training: Training, then: Callable[[], None]) -> None:
    """Call `wait()` on one stream, and go on with the gradients on another."""
    training.begin()
    with torch.cuda.stream(training.other):
        training.wait()
    then()
    training.unbind()


def zeroes_elsewhere(training: Training, then: Callable[[], None]) -> None:
    """Zero on one stream, and go on with the memory on another."""
    training.begin()
    training.wait()
    with torch.cuda.stream(training.other):
        training.zero_grad()
    then()
    training.unbind()


def scales_elsewhere(training: Training) -> None:
    training.begin()
    training.wait()
    with torch.cuda.stream(training.other):
        training.scale_grads()
    training.zero_grad()
    training.unbind()


def gives_a_step_up_elsewhere(training: Training) -> None:
    """Zero, on another stream, gradients before any wait for them."""
    training.begin()
    with torch.cuda.stream(training.other):
        training.zero_grad()
    training.unbind()


def looks_at_local_gradients(training: Training) -> None:
    training.begin()
    training.wait()
    training.unbind()


@dataclass(frozen=True)
class Edge:
    """A statement that orders streams, and the program that needs the order."""

    place: tuple[str, str, str]
    program: Callable[[Training], None]
    remedy: str
    sharded: bool = False
    check_finite: bool = False
    reads_scale: bool = True


EDGES = [
    Edge(
        ("bucket.bucket", "launch", "self._side.wait_for(self._writers)"), reduces,
        "insert `stream 3.wait_stream(default)` before syncverify/synchronizer/transport/reduction.py in start",
    ),
    Edge(
        ("bucket.bucket", "finish", "self._side.wait_for((self._side.current(),))"),
        scales_by_a_tensor, "insert `stream 3.wait_stream(default)` before syncverify/synchronizer/plan/wire_format.py in unload",
        reads_scale=False,
    ),
    Edge(
        ("bucket.bucket", "borrow", "self._side.release_to(current)"),
        lambda t: waits_elsewhere(t, t.scale_grads),
        "insert `default.wait_stream(stream 3)` before syncverify/synchronizer/bucket/bucket.py in scale",
    ),
    Edge(
        ("bucket.bucket", "borrow", "self._side.wait_for((current,))"),
        scales_elsewhere,
        "insert `default.wait_stream(stream 1)` before syncverify/synchronizer/bucket/bucket.py in restart",
    ),
    Edge(
        ("bucket.bucket", "restart", "self._side.release_to(current)"),
        lambda t: waits_elsewhere(t, t.zero_grad),
        "insert `default.wait_stream(stream 3)` before syncverify/synchronizer/bucket/bucket.py in restart",
    ),
    Edge(
        ("bucket.bucket", "restart", "self._side.wait_for(self._writers)"),
        gives_a_step_up_elsewhere,
        "insert `stream 1.wait_stream(default)` before syncverify/synchronizer/bucket/bucket.py in restart", sharded=True,
    ),
    Edge(
        ("bucket.bucket", "release", "self._side.release_to(self._allocation_stream)"),
        lambda t: waits_elsewhere(t, lambda: None),
        "insert `default.wait_stream(stream 3)` before the last reference to its memory "
        "goes away",
    ),
    Edge(
        ("bucket.bucket", "release", "self._allocation_stream.wait_stream(stream)"),
        lambda t: zeroes_elsewhere(t, lambda: None),
        "insert `tensor.record_stream(stream 1)` after syncverify/synchronizer/bucket/bucket.py in restart, "
        "or hold a reference until its stream waited for `stream 1`",
    ),
    Edge(
        ("bucket.bucket", "flush", "self._side.wait_for(self._writers)"),
        looks_at_local_gradients,
        "insert `stream 3.wait_stream(default)` before syncverify/synchronizer/bucket/finite_check.py in run", sharded=True, check_finite=True,
    ),
    Edge(
        ("step.sequence", "finish", "side.release_to(side.current())"), reduces,
        "insert `default.wait_stream(stream 3)` before wait() returns",
    ),
]  # fmt: skip
every_edge = pytest.mark.parametrize("edge", EDGES, ids=lambda e: "-".join(e.place[:2]))


def remedies(edge: Edge) -> list[str]:
    """Play the program on two ranks, and return the remedies of all disorders."""
    machine = SimulatedMachine(2)

    def play(rank: int) -> None:
        training = Training(
            machine.recorders[rank],
            sharded=edge.sharded,
            check_finite=edge.check_finite,
        )
        edge.program(training)

    threads, stall = machine.run(play)
    for thread in threads:
        if thread.error is not None:
            raise thread.error
    assert stall is None, stall
    found = disorders([recorder.trace for recorder in machine.recorders])
    texts = [re.sub(r":\d+", "", str(disorder.remedy)) for disorder in found]
    # Up to Python 3.11 a comprehension is a function of its own.
    return [text.replace("<listcomp>", "run") for text in texts]


class WithoutStatement(ast.NodeTransformer):
    """Turns one statement of one function into `pass`, and moves no line."""

    def __init__(self, function: str, statement: str) -> None:
        self.place = (function, statement)
        self.function = ""
        self.num_removed = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        before, self.function = self.function, node.name
        visited = self.generic_visit(node)
        self.function = before
        return visited

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if (self.function, ast.unparse(node)) != self.place:
            return node
        self.num_removed += 1
        return ast.copy_location(ast.Pass(), node)


def remove(monkeypatch: pytest.MonkeyPatch, edge: Edge) -> None:
    module_name, function, statement = edge.place
    module = importlib.import_module(f"syncverify.synchronizer.{module_name}")
    assert module.__file__
    without = WithoutStatement(function, statement)
    tree = without.visit(ast.parse(Path(module.__file__).read_text("utf-8")))
    assert without.num_removed == 1
    changed = dict(vars(module))
    exec(compile(tree, module.__file__, "exec"), changed)  # it is ours
    for owner in vars(module).copy().values():
        if (
            isinstance(owner, type)
            and owner.__module__ == module.__name__
            and function in vars(owner)
        ):
            monkeypatch.setattr(
                owner, function, vars(changed[owner.__name__])[function]
            )


@every_edge
def test_removing_an_edge_is_noticed(
    monkeypatch: pytest.MonkeyPatch, edge: Edge
) -> None:
    if not edge.reads_scale:
        monkeypatch.setattr(arguments, "checked_factor", lambda _, factor: factor)
    assert remedies(edge) == []
    remove(monkeypatch, edge)
    assert remedies(edge) == [f"{edge.remedy}: holds"]


def statements() -> Iterator[tuple[str, str, str]]:
    """Yield every call that makes a stream wait, but for the definitions themselves."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef) or function.name in WAITS:
                continue
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in WAITS
                ):
                    yield module, function.name, ast.unparse(node)


def test_every_edge_of_the_synchronizer_is_listed() -> None:
    assert sorted(edge.place for edge in EDGES) == sorted(statements())
