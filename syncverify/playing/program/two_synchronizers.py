"""Two synchronizers of one subject, each with every other parameter of a program."""

import itertools

from torch import nn

from syncverify.subjects.subject import SubjectFactory
from syncverify.subjects.subject_api import (
    EndsStepsEarly,
    MarksByHand,
    OwnsGradients,
    Resets,
    RunsMicroBatches,
    takes_new_counts,
)

Groups = list[list[nn.Parameter]]


class TwoSynchronizers:
    """Two synchronizers that take turns, the first one first, behind the methods of one.

    The first synchronizer takes a single parameter, and there is no second one.

    Raises:
        NotImplementedError: The subject runs the forward, and only one wrapper can.
    """

    def __init__(
        self, factory: SubjectFactory, groups: Groups, size_mb: float, *count: int
    ) -> None:
        halves = _every_other(groups, 0), _every_other(groups, 1)
        self._halves = [half for half in halves if half]
        self.each = [factory(half, size_mb, *count) for half in self._halves]
        if any(isinstance(one, RunsMicroBatches) for one in self.each):
            raise NotImplementedError(
                "two synchronizers in one program: not played with subjects that run the "
                "forward themselves"
            )

    def bind(self) -> None:
        """Bind both."""
        for one in self.each:
            one.bind()

    def wait(self) -> None:
        """Wait for both."""
        for one in self.each:
            one.wait()

    def zero_grad(self) -> None:
        """Clear the gradients of both."""
        for one in self.each:
            one.zero_grad()

    def unbind(self) -> None:
        """Unbind both."""
        for one in self.each:
            one.unbind()

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Announce a number of micro-batches to those that take it."""
        for one in self.each:
            if takes_new_counts(one):
                one.set_required_accumulations(require_accumulations)

    def flush(self) -> None:
        """End the steps of those that can end one early."""
        for one in self.each:
            if isinstance(one, EndsStepsEarly):
                one.flush()

    def reset(self) -> None:
        """Throw a step away, in the way of each."""
        for one in self.each:
            if isinstance(one, Resets):
                one.reset()
            else:
                one.zero_grad()

    def mark_ready(self, *parameters: nn.Parameter) -> None:
        """Tell each that its parameters have gradients that were added by hand."""
        for one, half in zip(self.each, self._halves, strict=True):
            listed = {*itertools.chain(*half)}
            if isinstance(one, MarksByHand):
                one.mark_ready(*(each for each in parameters if each in listed))

    def owner(self, parameter: nn.Parameter) -> bool:
        """Tell whether this rank owns the gradient of a parameter."""
        return any(
            isinstance(one, OwnsGradients) and one.owner(parameter)
            for one, half in zip(self.each, self._halves, strict=True)
            if any(parameter is listed for group in half for listed in group)
        )


def _every_other(groups: Groups, first: int) -> Groups:
    """Return the groups with every other parameter of all, without empty groups.

    A parameter that is listed twice stays with one synchronizer.
    """
    distinct = [*dict.fromkeys(itertools.chain(*groups))]
    chosen = {*distinct[first::2]}
    halves = [[each for each in group if each in chosen] for group in groups]
    return [half for half in halves if half]
