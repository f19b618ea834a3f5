"""One backward pass over nodes on several streams; see Note [Autograd on streams]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from syncverify.sim.streams import RankStreams, VirtualStream


class EngineRun:
    """Follows the engine from node to node.

    Args:
        streams: Of the rank.
        nodes: All nodes that may run, and the stream of each.
        caller: Stream that is current at `backward()`.
    """

    def __init__(
        self,
        streams: RankStreams,
        nodes: dict[Any, VirtualStream],
        caller: VirtualStream,
    ) -> None:
        self._streams = streams
        self._nodes = nodes
        self._caller = caller
        self._running: Any = None
        # Stream on which the engine adds up gradients, after a node is done.
        self._adding: VirtualStream | None = None
        # What a node has to wait for before it runs, by node and input.
        self._pending: dict[Any, dict[int, int]] = {}
        self._fed: set[tuple[Any, int]] = set()
        self._leaf_streams: dict[VirtualStream, None] = {}
        self._asked_for: list[Any] = []
        self._has_joined = False
        self._handles = [
            handle
            for node in nodes
            for handle in (
                node.register_prehook(self._on_entry(node)),
                node.register_hook(self._on_exit(node)),
            )
        ]

    def start(
        self,
        roots: Sequence[Any],
        gradients: Sequence[torch.Tensor | None],
        inputs: Iterable[Any],
    ) -> None:
        """Order the first nodes after the stream of the caller.

        Args:
            roots: Nodes to start from.
            gradients: What each of them is given.
            inputs: Nodes whose gradients are asked for, instead of accumulated.
        """
        mark: int | None = None
        for root, gradient in zip(roots, gradients, strict=True):
            if (own := self._nodes[root]) == self._caller:
                continue
            mark = self._streams.mark(self._caller) if mark is None else mark
            self._pending.setdefault(root, {})[-1] = mark
            if gradient is not None:
                self._streams.record_consumer(gradient, own)
        self._asked_for = [node for node in inputs if node in self._nodes]

    def stream_of_running(self, node: Any) -> VirtualStream:
        """Return the stream that is current while a node runs.

        Args:
            node: One of this run, or else all of them are done.
        """
        own = self._nodes.get(node)
        if own is None:
            self.join()
            return self._caller
        if node is not self._running:
            self._enter(node, own)
        return self._adding or own

    def join(self) -> None:
        """Order the caller's stream after all leaves; all nodes are done."""
        if self._has_joined:
            return
        self._has_joined = True
        for node in self._asked_for:
            own = self._nodes[node]
            self._leaf_streams[own] = None
            self._await_gradients(node, own)
        for stream in self._leaf_streams:
            if stream != self._caller:
                self._streams.wait(self._caller, self._streams.mark(stream))

    def forget(self) -> None:
        """Leave the nodes as they were."""
        for handle in self._handles:
            handle.remove()

    def _enter(self, node: Any, own: VirtualStream) -> None:
        self._running, self._adding = node, None
        self._await_gradients(node, own)
        if not node.next_functions:
            self._leaf_streams[own] = None

    def _await_gradients(self, node: Any, own: VirtualStream) -> None:
        for mark in self._pending.pop(node, {}).values():
            self._streams.wait(own, mark)

    def _on_entry(self, node: Any) -> Callable[..., None]:
        def enter(*_: object) -> None:
            self._streams.engine.current()

        return enter

    def _on_exit(self, node: Any) -> Callable[..., None]:
        def leave(gradients: Sequence[torch.Tensor | None], _: object) -> None:
            edges = zip(node.next_functions, gradients, strict=False)
            for (consumer, input_nr), gradient in edges:
                if consumer in self._nodes and gradient is not None:
                    self._feed(node, consumer, input_nr, gradient)

        return leave

    def _feed(
        self, producer: Any, consumer: Any, input_nr: int, gradient: torch.Tensor
    ) -> None:
        own, other = self._nodes[producer], self._nodes[consumer]
        is_first = (consumer, input_nr) not in self._fed
        self._fed.add((consumer, input_nr))
        pending = self._pending.setdefault(consumer, {})
        if own != other:
            self._streams.record_consumer(gradient, other)
        if is_first:
            if own != other:
                pending[input_nr] = self._streams.mark(own)
            return
        marks = [pending.pop(input_nr)] if input_nr in pending else []
        marks += [self._streams.mark(own)] if own != other else []
        for mark in marks:
            self._streams.wait(other, mark)
        self._adding = other
