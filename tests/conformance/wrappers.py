"""Models whose gradients are averaged over all ranks: by our synchronizer, or by torch.

A case is written once and played with each wrapper of this module that can do it. So torch's
own wrappers confirm what a case expects.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from syncverify.synchronizer import GradientSynchronizer, SynchronizerConfig

Future = torch.futures.Future
# Shape (N,): the gradients of a bucket. The result takes the place of their mean.
Hook = Callable[[torch.Tensor, dist.ProcessGroup], "Future[torch.Tensor]"]


@dataclass(frozen=True)
class Options:
    """The needs of a case."""

    unused: Literal["error", "zeros", "keep_none"] = "error"
    micro_batches: int = 1
    hook: Hook | None = None
    ignored: tuple[str, ...] = ()
    group: dist.ProcessGroup | None = None
    bucket_mb: float = 25
    static_graph: bool = False


# A model that is wrapped on one rank. It is called, and each step ends with `finish()`, which makes
# its gradients complete, and `zero_grad()`.
Wrapped = Any


class BySynchronizer:
    """Our synchronizer; the model itself runs forward."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        self.forward: Callable[..., Any] = model
        listed = [p for n, p in model.named_parameters() if n not in options.ignored]
        self.synchronizer = GradientSynchronizer.from_module(
            model,
            options.bucket_mb,
            options.micro_batches,
            param_groups=[listed],
            config=config(options),
        )
        self.synchronizer.bind()

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.forward(*inputs, **named)

    def finish(self) -> None:
        self.synchronizer.wait()

    def zero_grad(self) -> None:
        self.synchronizer.zero_grad()

    def no_sync(self) -> AbstractContextManager[Any]:
        return self.synchronizer.no_sync()


def ours(model: nn.Module, **options: Any) -> BySynchronizer:
    """Wrap a model by our synchronizer."""
    return BySynchronizer(model, Options(**options))


def config(options: Options) -> SynchronizerConfig:
    """Return the config that averages as DDP does."""
    hook = options.hook
    return SynchronizerConfig(
        process_group=options.group or dist.group.WORLD,
        process_group_reduction="avg" if hook is None else "sum",
        unused=options.unused,
        comm_hook=hook and (lambda bucket: hook(bucket.buffer, bucket.group)),
    )


class ByDdp:
    """torch's DistributedDataParallel."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
            model, list(options.ignored)
        )
        static = options.static_graph  # DDP warns of both at once
        self.model = DistributedDataParallel(
            model,
            bucket_cap_mb=options.bucket_mb,
            find_unused_parameters=options.unused != "error" and not static,
            static_graph=static,
        )
        if options.hook is not None:
            hook, group = options.hook, dist.group.WORLD
            self.model.register_comm_hook(
                group, lambda group, bucket: hook(bucket.buffer(), group)
            )
        self._micro_batches, self._num_forwards = options.micro_batches, 0

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self._num_forwards += torch.is_grad_enabled()
        is_last = self._num_forwards % self._micro_batches == 0
        with nullcontext() if is_last else self.model.no_sync():
            return self.model(*inputs, **named)

    def finish(self) -> None:
        """DDP has no such call."""

    def zero_grad(self) -> None:
        self.model.zero_grad()

    def no_sync(self) -> AbstractContextManager[Any]:
        return self.model.no_sync()


class ByReplicate:
    """torch's composable `replicate`, which changes the model in place."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        # Private, and another torch may have it elsewhere.
        from torch.distributed._composable.replicate import replicate

        ignored = [p for n, p in model.named_parameters() if n in options.ignored]
        self._model = replicate(
            model,
            ignored_modules=[m for m in model.modules() if holds(m, ignored)],
            bucket_cap_mb=options.bucket_mb,
            gradient_as_bucket_view=True,
        )

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._model(*inputs, **named)

    def finish(self) -> None:
        """`replicate` has no such call."""

    def zero_grad(self) -> None:
        self._model.zero_grad()


def holds(module: nn.Module, parameters: list[nn.Parameter]) -> bool:
    """Tell whether a module has parameters of its own, and all are among `parameters`."""
    own = [*module.parameters(recurse=False)]
    return bool(own) and all(any(p is each for each in parameters) for p in own)


def wrapped_by(name: str, model: nn.Module, **options: Any) -> Wrapped:
    """Wrap a model by the synchronizer, by DDP or by `replicate`."""
    wrappers = {"synchronizer": BySynchronizer, "ddp": ByDdp, "replicate": ByReplicate}
    return wrappers[name](model, Options(**options))
