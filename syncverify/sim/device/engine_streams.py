"""The streams of backward nodes: torch's autograd engine on CUDA, on virtual streams.

Note [Autograd on streams]
    The model covers one device and dense tensors:

    * A backward node runs on the stream on which its forward operator ran.
    * Accumulation into a leaf runs on the stream that was current when the leaf's
      AccumulateGrad node was made: the node's constructor stores it, in torch 2.13 to 2.15.
      The first operator that records a graph makes the node. An operator that records no
      graph, such as `detach()`, makes none. Tensors refer to the node weakly. It is made
      anew when no graph holds it. It stays, with its stream, while an owner holds it: a
      hook that keeps it, or the reducer of DistributedDataParallel, which makes it in C++.
      A later use of the leaf on another stream changes nothing.
    * Hooks run on the stream of their node. A stream that a hook makes current stays
      current until the node ends.
    * Between nodes on two streams, the consumer's stream waits for the work that the
      producer's stream holds when the producer is done. For the first gradient of an input
      this wait comes just before the consumer runs. Each further gradient is waited for
      when it is added to the first, on the consumer's stream.
    * The first node waits for the stream that is current at `backward()`. The memory of
      the initial gradients is kept until the first node's stream is done with it. The same
      holds for every gradient that one node gives to a node on another stream.
    * If the caller asks for the gradient of an input, the stream of the input's node waits
      for that gradient, as if the node ran.
    * After the last node, and not before, the stream that was current at `backward()`
      waits for all streams on which leaves were accumulated. Then final callbacks run on
      the stream that was current at `backward()`.

    Sources: torch/csrc/autograd/engine.cpp (`evaluate_function`,
    `GraphTask::exec_post_processing`), input_buffer.cpp (Note [Autograd Producer-Consumer
    Stream Syncs]), node.h (Note: Function Streams), "Stream semantics of backward passes" in
    docs/source/notes/cuda.rst. For the AccumulateGrad node: functions/accumulate_grad.cpp (its
    constructor calls `add_input_metadata`), input_metadata.cpp (the metadata store the current
    stream), variable.cpp (`grad_accumulator`), torch/csrc/distributed/c10d/reducer.cpp (the
    constructor keeps the nodes), and torch's own warning about such a node (pytorch#166136).

    Not modelled:

    * Backwards that are nested more than 60 deep: the engine moves them to another thread.
    * An AccumulateGrad node that outlives its graph, if no recorded operator has used the leaf
      where the node was made: C++ code other than the reducer, or a `torch.autograd.Function`
      that calls no operator on the leaf, has made the node.
    * A node that feeds several consumers on different streams, each for the second time or
      later: the model runs all these additions on one of the streams.

Note [Sequence numbers tell the stream]
    Each node gets the next sequence number of its thread when it is made. So the number at
    each switch of streams is enough to know the stream of every node.
    AccumulateGrad nodes have no number. Each operator notes the leaves that it uses, with the
    current stream. When the stream changes, the nodes of these leaves get the stream as a tag,
    unless they have one: a node that is alive then was made on that stream, or before and has
    its tag. Any other node counts as old as the first operator of the graph that used the leaf.
"""

import bisect
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.holding import holding
from syncverify.sim.device.engine_run import EngineRun
from syncverify.sim.device.torch_internals import (
    next_sequence_number,
    running_node,
    sequence_number_of,
)
from syncverify.sim.device.virtual_streams import StreamQueues, VirtualStream

# Keys in the `metadata` of a node, a dictionary that lives as long as the node.
_TAG = "syncverify stream"
_PROBE = "syncverify probe"


@dataclass(slots=True)
class _Frame:
    """The host, or a backward pass that it is in."""

    stream: VirtualStream  # current on the host, or at `backward()`
    run: EngineRun | None = None  # None if all nodes are on `stream`
    # Node in which a hook has made a stream current, and that stream.
    made_current: tuple[Any, VirtualStream] | None = None


class EngineStreams:
    """The current stream of a rank, inside and outside of backward passes."""

    def __init__(self, streams: StreamQueues) -> None:
        self._streams = streams
        self._default = streams.default
        self._frames = [_Frame(self._default)]
        # First sequence number of each segment, and the stream of its nodes.
        self._segments = [(0, self._default)]
        self._has_tags = False
        # By id of the leaf: leaves that operators have used since the last change of streams,
        # and the stream of the first use. A strong reference would keep their memory.
        self._used_leaves = dict[int, tuple[weakref.ref[torch.Tensor], VirtualStream]]()
        self._is_tagging = False

    def current(self) -> VirtualStream:
        """Return the stream on which the calling thread queues work."""
        frame = self._frames[-1]
        if frame.run is None and frame.made_current is None:
            return frame.stream
        node = running_node()
        if frame.made_current is not None:
            if frame.made_current[0] is node:
                return frame.made_current[1]
            frame.made_current = None  # the node has ended
        stream = frame.stream
        if frame.run is not None:
            stream = frame.run.stream_of_running(node)
        self._note(stream)
        return stream

    def set_current(self, stream: VirtualStream) -> None:
        """Make a stream current, until the running node ends if there is one."""
        if stream != self.current():
            self._tag_used_leaves()
        frame = self._frames[-1]
        if len(self._frames) == 1:
            frame.stream = stream
        elif frame.run is None and stream == frame.stream:
            frame.made_current = None
        else:
            frame.made_current = (running_node(), stream)
        self._note(stream)

    def run_backward(
        self,
        run: Callable[[], Any],
        outputs: Sequence[torch.Tensor | GradientEdge],
        gradients: Sequence[torch.Tensor | None],
        inputs: Sequence[torch.Tensor | GradientEdge],
    ) -> Any:
        """Return the result of the engine's backward pass `run()`, and model its streams.

        The pass starts from `outputs`. An initial gradient of None is a gradient of ones.
        If `inputs` are empty, the gradients of all leaves are accumulated.
        """
        caller = self.current()
        if caller != self._default:
            self._tag_used_leaves()
        frame = _Frame(caller, self._follow(outputs, gradients, inputs, caller))
        self._frames.append(frame)
        try:
            result = run()
            if frame.run is not None:
                # From here on, work on the caller's stream may read every gradient.
                frame.run.join()
        finally:
            # Leaves that nodes of the pass have used, such as recomputed ones, on their streams.
            if any(stream != caller for _, stream in self._used_leaves.values()):
                self._tag_used_leaves()
            self._frames.pop()
            if frame.run is not None:
                frame.run.forget()
            self._note(self.current())
        return result

    def note_leaves(self, leaves: Iterable[torch.Tensor]) -> None:
        """Note that a graph on the current stream uses leaves.

        Within an operator the nodes of leaves are out of reach, so they are tagged later, at
        the next change of streams, and at `backward()` beside the default stream.
        """
        if self._is_tagging:
            return
        stream = self.current()
        for leaf in leaves:
            known = self._used_leaves.get(id(leaf))
            if known is None or known[0]() is not leaf:
                self._used_leaves[id(leaf)] = weakref.ref(leaf), stream

    def tag_new_leaves(self, leaves: Iterable[torch.Tensor]) -> list[GradientEdge]:
        """Return edges to the AccumulateGrad nodes of leaves, made on the current stream if new.

        They keep the nodes alive until the forward pass uses them.
        """
        if self.current() == self._default:
            return []
        own = (leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf)
        return [self._tag_new_leaf(leaf) for leaf in own]

    def _tag_new_leaf(self, leaf: torch.Tensor) -> GradientEdge:
        """Return the edge to a leaf's node, tagged with the stream on which it was made.

        A look at the node makes one if no graph holds it. So the first look leaves a mark in
        the node, and the second look checks for it: a node that no graph holds is gone by
        then, with its mark. A node with a tag needs no second look.
        """
        edge = _edge_of_leaf(leaf)
        tags: Any = edge.node.metadata
        if _TAG not in tags:
            tags[_PROBE] = True
            del edge
            edge = _edge_of_leaf(leaf)
            tags = edge.node.metadata
            tags[_TAG] = self._default if _PROBE in tags else self.current()
        self._has_tags = True
        return edge

    def _tag_used_leaves(self) -> None:
        used, self._used_leaves = self._used_leaves, {}
        # A look at a node is an operator on the leaf.
        with holding(self, "_is_tagging", True):
            for reference, stream in used.values():
                leaf = reference()
                if leaf is not None and leaf.requires_grad and leaf.is_leaf:
                    tag = node_of(leaf).metadata.setdefault(_TAG, stream)
                    self._has_tags = self._has_tags or tag != self._default

    def _note(self, stream: VirtualStream) -> None:
        """Note that the stream of all nodes made from now on is `stream`."""
        if stream == self._segments[-1][1]:
            return
        number = next_sequence_number()
        if self._segments[-1][0] == number and number:  # no node was made meanwhile
            del self._segments[-1]
        if not self._segments or stream != self._segments[-1][1]:
            self._segments.append((number, stream))

    def _follow(
        self,
        outputs: Sequence[torch.Tensor | GradientEdge],
        gradients: Sequence[torch.Tensor | None],
        inputs: Sequence[torch.Tensor | GradientEdge],
        caller: VirtualStream,
    ) -> EngineRun | None:
        # With one stream and no tags there is no edge between streams: skip the walk.
        is_plain = len(self._segments) == 1 and not self._has_tags
        if is_plain and caller == self._default:
            return None
        roots = [node_of(output) for output in outputs]
        users = _first_users(roots)
        nodes = {node: self._stream_of(node, user) for node, user in users.items()}
        if all(stream == caller for stream in nodes.values()):
            return None
        run = EngineRun(self._streams, nodes, caller)
        run.start(roots, gradients, [node_of(entry) for entry in inputs])
        return run

    def _stream_of(self, node: Any, first_user: int) -> VirtualStream:
        tag: VirtualStream | None = node.metadata.get(_TAG)
        if tag is not None:
            return tag
        is_accumulation = node.name().endswith("AccumulateGrad")
        number = first_user if is_accumulation else sequence_number_of(node)
        after = bisect.bisect_right(self._segments, number, key=itemgetter(0))
        return self._segments[after - 1][1]


class _Use(torch.autograd.Function):
    """Uses a tensor in a graph without a look at its memory."""

    @staticmethod
    @override
    def forward(_ctx: Any, _leaf: torch.Tensor) -> torch.Tensor:
        return torch.zeros(())


def node_of(output: torch.Tensor | GradientEdge) -> Any:
    """Return the node from which a backward pass of an output starts."""
    if not isinstance(output, torch.Tensor):
        return output.node
    if output.is_leaf and output.requires_grad:
        return _edge_of_leaf(output).node
    return get_gradient_edge(output).node


def _edge_of_leaf(leaf: torch.Tensor) -> GradientEdge:
    """Return the edge to the AccumulateGrad node of a leaf; the edge keeps the node alive.

    torch's `get_gradient_edge()` makes a view of the leaf's shape, which DTensor refuses if
    a sharded dim is empty.
    """
    with torch.enable_grad():
        try:
            if isinstance(leaf, DTensor):  # a view takes three times as long
                user = leaf.to_local().grad_fn
            else:
                user = leaf.expand_as(leaf).grad_fn
        except RuntimeError:  # FSDP2 has freed the memory, and torch makes no view
            user = _Use.apply(leaf).grad_fn  # type: ignore[no-untyped-call]
    assert user is not None, "a leaf that requires a gradient"
    node, _ = user.next_functions[0]
    assert node is not None, "and so has one"
    return GradientEdge(node, 0)


def _first_users(roots: Sequence[Any]) -> dict[Any, int]:
    """Return all nodes that may run, each with the least number among its users."""
    found = {root: sequence_number_of(root) for root in roots}
    waiting = list(found)
    while waiting:
        user = waiting.pop()
        number = sequence_number_of(user)
        for node, _ in user.next_functions:
            if node is not None:
                if node not in found:
                    waiting.append(node)
                found[node] = min(found.get(node, number), number)
    return found
