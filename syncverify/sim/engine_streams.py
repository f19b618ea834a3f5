"""On which stream autograd works: what torch's engine does on CUDA, on virtual streams.

Note [Autograd on streams]
    What is modelled, for one device and tensors that are dense:

    * A backward node runs on the stream on which its forward operator ran.
    * Accumulation into a leaf runs on the stream that was current when the leaf's
      AccumulateGrad node was made, by the first operator that used it. Tensors refer to
      the node weakly: it is made anew when no graph holds it, and stays, with its
      stream, where somebody does (as DistributedDataParallel).
    * Hooks run on the stream of their node. What a hook makes current is so until the
      node ends.
    * Between nodes on two streams, the consumer waits for what the producer's stream
      holds when the producer is done. The first gradient is waited for just before the
      consumer runs, further ones when they are added to it, on the consumer's stream.
    * The first node waits for the stream that is current at `backward()`, and memory of
      what it starts with is kept for it, as is all that one node gives to another on
      another stream.
    * A gradient that is asked for is waited for by its node's stream, as if that ran.
    * When all nodes are done, and not before, the stream that was current at `backward()`
      waits for all streams on which leaves were accumulated. Then final callbacks run, on
      that stream.

    Sources: torch/csrc/autograd/engine.cpp (`evaluate_function`,
    `GraphTask::exec_post_processing`), input_buffer.cpp (Note [Autograd Producer-Consumer
    Stream Syncs]), node.h (Note: Function Streams), input_metadata.h; "Stream semantics of
    backward passes" in docs/source/notes/cuda.rst; for the AccumulateGrad node the text of
    torch's own warning about its stream.

    Not modelled: backwards that are nested more than 60 deep, which the engine moves to
    another thread; an AccumulateGrad node that outlives its graph, if the subject has used
    its leaf on another stream meanwhile, or made it in C++ beside the default stream; a node that feeds several consumers on different streams, each of them
    not for the first time, whose additions are all taken to run on one of these streams.

Note [Sequence numbers tell the stream]
    Each node has the number that its thread had reached when it was made. So to know the
    stream of every node it is enough to write down the number at each switch of streams.
    AccumulateGrad nodes have no number: they are tagged where they are seen to be made
    beside the default stream, and are otherwise taken to be as old as the first operator
    of the graph that used the leaf. A rank that never computes beside its default stream
    pays nothing.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from syncverify.sim.engine_run import EngineRun
from syncverify.sim.torch_internals import next_sequence_number, running_node

if TYPE_CHECKING:
    from syncverify.sim.streams import RankStreams, VirtualStream

# Where a tag lies in a node's own dictionary, which lives as long as the node.
_TAG = "syncverify stream"
_PROBE = "syncverify probe"


@dataclass(slots=True)
class _Frame:
    """The host, or a backward pass that it is in.

    Attributes:
        stream: Current on the host, or at `backward()`.
        run: Follows the nodes; None where all are on that stream.
        made_current: What a hook made current, and in which node.
    """

    stream: VirtualStream
    run: EngineRun | None = None
    made_current: tuple[Any, VirtualStream] | None = None


class EngineStreams:
    """The current stream of a rank, inside and outside of backward passes.

    Args:
        streams: Of the rank.
    """

    def __init__(self, streams: RankStreams) -> None:
        self._streams = streams
        self._default = streams.default
        self._frames = [_Frame(self._default)]
        # First sequence number of each segment, and the stream of its nodes.
        self._starts = [0]
        self._segments = [self._default]
        self._has_tags = False
        # Leaves that were used on the stream that is current, if not the default one.
        self._used_leaves: list[torch.Tensor] = []

    def current(self) -> VirtualStream:
        """Return the stream on which the calling thread queues work."""
        frame = self._frames[-1]
        if frame.run is None and frame.made_current is None:
            return frame.stream
        return self._current_in(frame)

    def set_current(self, stream: VirtualStream) -> None:
        """Make a stream current, until the running node ends if there is one."""
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
        """Let the engine run.

        Args:
            run: Runs it.
            outputs: Where it starts.
            gradients: With what it starts there.
            inputs: What it is asked for; empty for all leaves.

        Returns:
            What it returns.
        """
        caller = self.current()
        self._tag_used_leaves()
        frame = _Frame(caller, self._follow(outputs, gradients, inputs, caller))
        self._frames.append(frame)
        try:
            result = run()
            if frame.run is not None:
                frame.run.join()
        finally:
            self._frames.pop()
            if frame.run is not None:
                frame.run.forget()
            self._note(self.current())
        return result

    def note_leaves(self, used: Iterable[torch.Tensor]) -> None:
        """Note that an operator on the current stream, not the default one, used tensors.

        Within an operator their nodes are out of reach, so this is made up for later.
        """
        self._used_leaves += [t for t in used if t.requires_grad and t.is_leaf]

    def tag_new_leaves(self, leaves: Iterable[torch.Tensor]) -> list[GradientEdge]:
        """Make the AccumulateGrad nodes of leaves on the current stream, where there are none.

        Args:
            leaves: Those that are about to be used.

        Returns:
            What keeps the nodes alive until they are used.
        """
        if self.current() == self._default:
            return []
        edges = []
        for leaf in leaves:
            if leaf.requires_grad and leaf.is_leaf:
                stream = self._default if _has_node(leaf) else self.current()
                edges.append(_edge_of_leaf(leaf))
                self._tag(leaf, stream)
        return edges

    def _tag_used_leaves(self) -> None:
        leaves, self._used_leaves = self._used_leaves, []
        for leaf in leaves:
            self._tag(leaf, self.current())

    def _tag(self, leaf: torch.Tensor, stream: VirtualStream) -> None:
        _node_of(leaf).metadata.setdefault(_TAG, stream)
        self._has_tags = True

    def _current_in(self, frame: _Frame) -> VirtualStream:
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

    def _note(self, stream: VirtualStream) -> None:
        """Note that nodes made from now on belong to a stream."""
        if stream == self._segments[-1]:
            return
        number = next_sequence_number()
        if self._starts[-1] == number and number:  # nothing was made meanwhile
            del self._starts[-1], self._segments[-1]
        if not self._segments or stream != self._segments[-1]:
            self._starts.append(number)
            self._segments.append(stream)

    def _follow(
        self,
        outputs: Sequence[torch.Tensor | GradientEdge],
        gradients: Sequence[torch.Tensor | None],
        inputs: Sequence[torch.Tensor | GradientEdge],
        caller: VirtualStream,
    ) -> EngineRun | None:
        is_plain = len(self._segments) == 1 and not self._has_tags
        if is_plain and caller == self._default:
            return None
        roots = [_node_of(output) for output in outputs]
        users = _first_users(roots)
        nodes = {node: self._stream_of(node, user) for node, user in users.items()}
        if all(stream == caller for stream in nodes.values()):
            return None
        run = EngineRun(self._streams, nodes, caller)
        run.start(roots, gradients, [_node_of(entry) for entry in inputs])
        return run

    def _stream_of(self, node: Any, first_user: int) -> VirtualStream:
        tag: VirtualStream | None = node.metadata.get(_TAG)
        if tag is not None:
            return tag
        number = first_user if _is_accumulation(node) else _number(node)
        return self._segments[bisect.bisect_right(self._starts, number) - 1]


def _node_of(output: torch.Tensor | GradientEdge) -> Any:
    if not isinstance(output, torch.Tensor):
        return output.node
    if output.is_leaf and output.requires_grad:
        return _edge_of_leaf(output).node
    return get_gradient_edge(output).node


def _edge_of_leaf(leaf: torch.Tensor) -> GradientEdge:
    """Find the AccumulateGrad node of a leaf.

    torch's `get_gradient_edge()` takes a view of its shape for it, which DTensor refuses
    where a sharded dim is empty.

    Returns:
        The edge to it, which keeps it alive.
    """
    with torch.enable_grad():
        user = leaf.expand_as(leaf).grad_fn
    assert user is not None, "a leaf that requires a gradient"
    node, _ = user.next_functions[0]
    assert node is not None, "and so has one"
    return GradientEdge(node, 0)


def _has_node(leaf: torch.Tensor) -> bool:
    """Tell whether some graph holds the AccumulateGrad node of a leaf.

    There is no way to look at it without making one, so that a mark is left in it: a node
    that nobody else holds is gone with its mark.

    Returns:
        Whether there is one.
    """
    _node_of(leaf).metadata[_PROBE] = True
    return _PROBE in _node_of(leaf).metadata


def _number(node: Any) -> int:
    number: int = node._sequence_nr()  # noqa: SLF001  # a part of its API without a docstring
    return number


def _is_accumulation(node: Any) -> bool:
    return bool(node.name().endswith("AccumulateGrad"))


def _first_users(roots: Sequence[Any]) -> dict[Any, int]:
    """Find all nodes that may run, and the least number among those that feed each."""
    found = {root: _number(root) for root in roots}
    waiting = list(found)
    while waiting:
        user = waiting.pop()
        number = _number(user)
        for node, _ in user.next_functions:
            if node is not None:
                if node not in found:
                    waiting.append(node)
                found[node] = min(found.get(node, number), number)
    return found
