"""One backward pass over nodes on several streams; see Note [Autograd on streams]."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from syncverify.sim.device.virtual_streams import StreamQueues, VirtualStream
from syncverify.trace.source_lines import NoLine

_CALLER = -1  # in the place of an input's number: the stream of the caller


class EngineRun:
    """Model of one backward pass: the waits that the engine puts between streams.

    `nodes` may run, each on its stream; `caller` is the stream that is current at
    `backward()`.
    """

    def __init__(
        self,
        streams: StreamQueues,
        nodes: dict[Any, VirtualStream],
        caller: VirtualStream,
    ) -> None:
        self._streams = streams
        self._nodes = nodes
        self._caller = caller
        self._running: Any = None
        # Stream on which the engine adds gradients up after the running node; None before.
        self._adding: VirtualStream | None = None
        # Marks that a node's stream has to wait for before the node runs, by node and input;
        # a root waits for the caller's stream as well.
        self._pending: dict[Any, dict[int, int]] = {}
        self._fed: set[tuple[Any, int]] = set()
        self._leaf_streams: dict[VirtualStream, None] = {}
        self._asked_for: list[Any] = []
        self._has_joined = False
        self._handles = [
            handle
            for node in nodes
            for handle in (
                node.register_prehook(self._on_entry),
                node.register_hook(functools.partial(self._on_exit, node)),
            )
        ]

    def start(
        self,
        roots: Sequence[Any],
        gradients: Sequence[torch.Tensor | None],
        inputs: Iterable[Any],
    ) -> None:
        """Order the roots, the first nodes, after the stream of the caller.

        `gradients` has the initial gradient of each root; None for a gradient of ones. `inputs` are
        nodes with gradients to return, instead of gradients to accumulate.
        """
        mark: int | None = None
        for root, gradient in zip(roots, gradients, strict=True):
            if (own := self._nodes[root]) == self._caller:
                continue
            # The caller's stream may still compute the loss: a root on another stream waits
            # for all that the caller's stream holds now.
            if mark is None:
                mark = self._streams.mark(self._caller, NoLine.AUTOGRAD)
            self._pending.setdefault(root, {})[_CALLER] = mark
            if gradient is not None:
                # Memory of the caller's stream, read on another stream: it may be reused
                # only after the root's stream is done.
                self._streams.record_consumer(gradient, own)
        self._asked_for = [node for node in inputs if node in self._nodes]

    def stream_of_running(self, node: Any) -> VirtualStream:
        """Return the stream that is current while a node runs.

        A node of another run means that this run is over.
        """
        own = self._nodes.get(node)
        if own is None:
            self.join()
            return self._caller
        if node is not self._running:
            self._running, self._adding = node, None
            self._await_gradients(node, own)
            if not node.next_functions:
                self._leaf_streams[own] = None
        return self._adding or own

    def join(self) -> None:
        """Order the caller's stream after the accumulation into all leaves.

        Before that, work on the caller's stream may overlap with the accumulation. The engine
        waits at the end of the pass only, so a hook sees no such order.
        """
        if self._has_joined:
            return
        self._has_joined = True
        for node in self._asked_for:
            own = self._nodes[node]
            self._leaf_streams[own] = None
            self._await_gradients(node, own)
        for stream in self._leaf_streams:
            if stream != self._caller:
                mark = self._streams.mark(stream, NoLine.AUTOGRAD)
                self._streams.wait(self._caller, mark, NoLine.AUTOGRAD)

    def forget(self) -> None:
        """Remove the hooks from the nodes."""
        for handle in self._handles:
            handle.remove()

    def _await_gradients(self, node: Any, own: VirtualStream) -> None:
        for mark in self._pending.pop(node, {}).values():
            self._streams.wait(own, mark, NoLine.AUTOGRAD)

    def _on_entry(self, *_: object) -> None:
        self._streams.current()

    def _on_exit(
        self, node: Any, gradients: Sequence[torch.Tensor | None], _: object
    ) -> None:
        edges = zip(node.next_functions, gradients, strict=False)
        for (consumer, input_nr), gradient in edges:
            if consumer in self._nodes and gradient is not None:
                self._feed(self._nodes[node], consumer, input_nr, gradient)

    def _feed(
        self, own: VirtualStream, consumer: Any, input_nr: int, gradient: torch.Tensor
    ) -> None:
        other = self._nodes[consumer]
        is_first = (consumer, input_nr) not in self._fed
        self._fed.add((consumer, input_nr))
        pending = self._pending.setdefault(consumer, {})
        if own != other:
            # The producer's stream may go on and free the gradient while the consumer's
            # stream still reads it: the allocator keeps the memory for the consumer.
            self._streams.record_consumer(gradient, other)
        if is_first:
            if own != other:
                pending[input_nr] = self._streams.mark(own, NoLine.AUTOGRAD)
            return
        # A further gradient is added to the first one at once, on the consumer's stream,
        # which therefore waits now for the producers of both.
        marks = [pending.pop(input_nr)] if input_nr in pending else []
        marks += [self._streams.mark(own, NoLine.AUTOGRAD)] if own != other else []
        for mark in marks:
            self._streams.wait(other, mark, NoLine.AUTOGRAD)
        self._adding = other
