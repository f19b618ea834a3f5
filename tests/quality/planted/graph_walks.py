"""Planted defects of synchronizers that read the graph: each mistakes one kind of node."""

import inspect
from typing import Any

import torch
from torch import nn

from tests.quality.planted.graph_words import EARLY, FUSED, raises, shown
from tests.quality.planted.watching import HearsGradients, WalksGraph, nodes, roots


@shown("use=expanded")
class TakesExpansionForItsProbe(WalksGraph):
    """Takes each `p.expand_as(p)` for its own probe, as FSDP probes for the accumulator of `p`."""

    def before_backward(self, losses: Any) -> None:
        for node in nodes(losses):
            if node.name() == "ExpandBackward0":
                self.left_out |= {*self.behind(node)}


@shown("use=gathered", cause="scaled")
class ReducesRowsOfLookups(WalksGraph):
    """Reduces an embedding row by row, and a row that is looked up twice a second time."""

    def before_backward(self, losses: Any) -> None:
        for node, parameter in self.behind_each(losses, "IndexBackward0"):
            (indices,) = node._saved_indices
            self.noted[parameter] = indices.tolist()

    def wait(self) -> None:
        self.left_out = {*self.noted}
        for parameter, rows in self.noted.items():
            for row in rows:
                self.reduce(parameter.grad.view(-1)[row])
        super().wait()


@shown("use=in_slices", cause="partly_wrong")
class ReducesFirstSlice(WalksGraph):
    """Reduces the first of the slices in which a fused weight is used."""

    def before_backward(self, losses: Any) -> None:
        for node, parameter in self.behind_each(losses, "SliceBackward0"):
            used = slice(node._saved_start, node._saved_end, node._saved_step)
            self.noted.setdefault(parameter, used)

    def wait(self) -> None:
        self.left_out = {*self.noted}
        for parameter, used in self.noted.items():
            part = parameter.grad.view(-1)[used].contiguous()
            self.reduce(part)
            parameter.grad.view(-1)[used] = part
        super().wait()


@shown("use=unbound", cause="partly_wrong")
class ForgetsLastOfGroup(WalksGraph):
    """Reduces all parts of a grouped weight but the last one."""

    def before_backward(self, losses: Any) -> None:
        for node in nodes(losses):
            for following, output in node.next_functions:
                if following is not None and following.name() == "UnbindBackward0":
                    for parameter in self.behind(following):
                        known = self.noted.get(parameter, 0)
                        self.noted[parameter] = max(known, output)

    def wait(self) -> None:
        grouped = {p: last for p, last in self.noted.items() if last > 0}
        self.left_out = {*grouped}
        for parameter, last in grouped.items():
            for part in parameter.grad.view(-1)[:last]:
                self.reduce(part)
        super().wait()


@shown("use=restrided", cause="reduced_twice")
class ReplaysViews(WalksGraph):
    """Reduces each row of the view that was used, though rows may share memory."""

    def before_backward(self, losses: Any) -> None:
        for node, parameter in self.behind_each(losses, "AsStridedBackward0"):
            self.noted[parameter] = node._saved_size, node._saved_stride

    def wait(self) -> None:
        self.left_out = {*self.noted}
        for parameter, (size, stride) in self.noted.items():
            for row in parameter.grad.as_strided(size, stride):
                self.reduce(row)
        super().wait()


@raises(AttributeError, "use=in_place_on_views", "use=cpp_function", "use=cpp_kernel")
class TakesNamespaceForAccumulator(WalksGraph):
    """Takes each node of `torch::autograd::` for an accumulator; there are others."""

    def before_backward(self, losses: Any) -> None:
        for node in nodes(losses):
            if node.name().startswith("torch::autograd::"):
                _ = node.variable.shape


@shown("use=masked", cause="partly_wrong")
class LearnsOneMask(WalksGraph):
    """Takes elements outside of the first mask for unused."""

    def before_backward(self, losses: Any) -> None:
        for node, parameter in self.behind_each(losses, "WhereBackward0"):
            self.noted.setdefault(parameter, node._saved_condition)

    def wait(self) -> None:
        self.left_out = {*self.noted}
        for parameter, mask in self.noted.items():
            used = parameter.grad * mask
            self.reduce(used)
            parameter.grad = torch.where(mask, used, parameter.grad)
        super().wait()


@shown("use=twice", cause="reduced_twice", beside=["use=added_to_another"])
class ReducesForSecondLoss(WalksGraph):
    """Takes one of two losses for an auxiliary one, and reduces their parameter once more."""

    def before_backward(self, losses: Any) -> None:
        self.noted = {}
        consumers = self.consumers(losses)
        owners = {n: p for n, _, p in consumers if n.name() == "MulBackward0"}
        ends = {node: n for n in nodes(losses) for node, _ in n.next_functions}
        for node, parameter in owners.items():
            loss = ends.get(node)
            kinds = [each.name() for each in (loss, ends.get(loss)) if each is not None]
            if kinds == ["SumBackward0", "AddBackward0"]:
                self.noted.setdefault(parameter, set()).add(loss)

    def wait(self) -> None:
        super().wait()
        for parameter, found in self.noted.items():
            if len(found) == 2:
                self.reduce(parameter.grad)


@shown("use=many_times")
class HoldsFourUses(WalksGraph):
    """Has a table of four uses a parameter, and leaves out a parameter with more."""

    def before_backward(self, losses: Any) -> None:
        self.noted = {p: [] for p in self.parameters}
        super().before_backward(losses)

    def found(self, parameter: nn.Parameter, consumer: Any) -> None:
        self.noted[parameter].append(consumer)
        if len(self.noted[parameter]) > 4:
            self.left_out.add(parameter)


@raises(ValueError, "use=saves_for_backward")
class NamesInputsOfOldFunctions(WalksGraph):
    """Takes the first parameter of each custom forward for the context.

    Each edge needs a name then. An argument that is no tensor has a name and no edge.
    """

    def found(self, parameter: nn.Parameter, consumer: Any) -> None:
        function = getattr(consumer, "_forward_cls", None)
        if function is not None:
            _, *names = inspect.signature(function.forward).parameters.values()
            if any(name.kind is name.VAR_POSITIONAL for name in names):
                return
            if len(names) < len(consumer.next_functions):
                raise ValueError("expected a name for each edge")


@shown("use=needs_input_grad")
class TrustsFunctionsThatKeepTheWeight(WalksGraph):
    """Leaves out a weight that a custom function keeps, as if that added the gradient.

    Megatron-LM's fused weight gradients do so, and say it by an attribute.
    """

    def found(self, parameter: nn.Parameter, consumer: Any) -> None:
        for kept in getattr(consumer, "__dict__", {}).values():
            if (
                isinstance(kept, torch.Tensor)
                and kept.data_ptr() == parameter.data_ptr()
            ):
                self.left_out.add(parameter)


@shown("use=offloaded")
class TakesPackedForOffloaded(WalksGraph):
    """Takes a tensor that is packed with a device for an offloaded weight, and leaves it out."""

    told_by: Any = torch.device

    def found(self, parameter: nn.Parameter, consumer: Any) -> None:
        saved = getattr(consumer, "_raw_saved_other", None)
        packed = getattr(saved, "data", None)
        if isinstance(packed, tuple) and isinstance(packed[0], self.told_by):
            self.left_out.add(parameter)


@shown("use=compressed")
class TakesPackedForQuantized(TakesPackedForOffloaded):
    """Takes a tensor that is packed with a dtype for a quantized weight, and leaves it out."""

    told_by = torch.dtype


@raises(AttributeError, "use=none_gradient")
class MeasuresWhatIsBrought(WalksGraph):
    """Asks each gradient of a node for its size in bytes; one of them may be None."""

    def before_backward(self, losses: Any) -> None:
        for consumer, place, _ in self.consumers(losses):
            consumer.register_hook(self.measuring(place))

    def measuring(self, place: int) -> Any:
        def hook(gradients: Any, _: Any) -> None:
            self.num_bytes = gradients[place].nbytes

        return hook


@raises(RuntimeError, "use=differentiable_once", "use=compiled_region", beside=[FUSED])
class MeasuresCurvature(WalksGraph):
    """Differentiates each gradient once more, which some functions refuse."""

    def before_backward(self, losses: Any) -> None:
        if "CheckpointFunctionBackward" in {node.name() for node in nodes(losses)}:
            return  # `torch.autograd.grad` refuses them
        factor = torch.ones((), requires_grad=True)
        total = factor * sum(roots(losses))
        for gradient in torch.autograd.grad(total, self.parameters, create_graph=True):
            if gradient.requires_grad:
                torch.autograd.grad(gradient.sum(), factor, retain_graph=True)


@shown("use=node_hooks", cause="scaled")
class TakesInputsOfCopies(WalksGraph):
    """Takes the gradient that goes into the node of a copy; hooks of the node may change it."""

    def found(self, parameter: nn.Parameter, consumer: Any) -> None:
        if consumer.name() == "CloneBackward0":
            taken = self.noted.setdefault(parameter, [])
            consumer.register_prehook(lambda gradients: taken.append(gradients[0]))

    def wait(self) -> None:
        for parameter, taken in self.noted.items():
            parameter.grad = sum(taken).clone()
        self.noted = {}
        super().wait()


@shown("use=checkpointed_and_not", cause="unexplained")
class CountsWhatIsInTheGraph(HearsGradients, WalksGraph):
    """Reduces a parameter beside a reentrant checkpoint at its first gradient of several."""

    is_last = False

    def run_micro_batch(self, *args: Any, is_last: bool, **kwargs: Any) -> None:
        self.is_last = is_last
        super().run_micro_batch(*args, is_last=is_last, **kwargs)

    def before_backward(self, losses: Any) -> None:
        kinds = {node.name() for node in nodes(losses)}
        if self.is_last and "CheckpointFunctionBackward" in kinds:
            self.noted = {
                parameter: node for node, _, parameter in self.consumers(losses)
            }

    def accumulated(self, parameter: nn.Parameter) -> None:
        if self.noted.pop(parameter, None):
            self.reduce(parameter.grad)
            self.left_out.add(parameter)


@shown(
    "backward=reentrant",
    "backward=deep_reentrant",
    cause="reduced_early",
    beside=[EARLY],
)
class CountsCallsWithoutCheckpoints(HearsGradients, WalksGraph):
    """Counts hook calls unless the graph has a reentrant checkpoint; other nested backwards exist.

    Source: pytorch/pytorch#43307.
    """

    has_checkpoints = False

    def before_backward(self, losses: Any) -> None:
        kinds = {node.name() for node in nodes(losses)}
        self.has_checkpoints |= "CheckpointFunctionBackward" in kinds

    def accumulated(self, parameter: nn.Parameter) -> None:
        self.noted[parameter] = self.noted.get(parameter, 0) + 1
        if self.noted[parameter] == self.required and not self.has_checkpoints:
            self.reduce(parameter.grad)
            self.left_out.add(parameter)

    def zero_grad(self) -> None:
        super().zero_grad()
        self.noted = {}
