"""Terms that cancel out show sums over micro-batches in the dtype of the wire."""

import torch
from torch import nn

from syncverify.bugbank.bases.placements import local, local_grad
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.scenario.contract import Capabilities
from tests.quality.planted.planted import VALUE, planted, right, training

CANCELLING = training(
    shape=(2, 3),
    ranks=4,
    accumulations=(3,),
    cap_bytes=64,
    parameter={"gradient": "cancelling"},
)
ROUNDED = (VALUE, "rounded")


@right(CANCELLING)
class SendsNarrow(PlainGrads):
    """Adds up micro-batches in the dtype of the gradient, and ranks in bfloat16."""

    capabilities = Capabilities(varying_accumulations=True, wire_dtype="bfloat16")

    def reduce(self, gradient: torch.Tensor) -> None:
        sent = gradient.to(torch.bfloat16)
        super().reduce(sent)
        local(gradient).copy_(local(sent))


@planted(ROUNDED, scenarios=(CANCELLING,))
class HoldsSumsNarrow(SendsNarrow):
    """Holds the sum of the micro-batches in bfloat16."""

    def bind(self) -> None:
        self.held: dict[nn.Parameter, torch.Tensor] = {}
        self.before: dict[nn.Parameter, torch.Tensor] = {}
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.hold)
            self.handles.append(hook)

    def hold(self, parameter: nn.Parameter) -> None:
        now = local_grad(parameter).clone()
        added = (now - self.before.get(parameter, 0)).to(torch.bfloat16)
        self.held[parameter] = self.held.get(parameter, 0) + added
        self.before[parameter] = now

    def wait(self) -> None:
        for parameter, held in self.held.items():
            local_grad(parameter).copy_(held)
        super().wait()

    def zero_grad(self) -> None:
        super().zero_grad()
        self.held, self.before = {}, {}
