"""The rank program: the one function that plays a scenario on one rank.

The same code runs on every backend. It knows the subject only by its API, observes
gradients only where the API says that they may be read, and judges nothing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.errors import SyncverifyError
from syncverify.graphs.backwards import num_backwards, run_backward
from syncverify.graphs.losses import Losses
from syncverify.materialize import LocalModel, build_mesh, build_model, local_part
from syncverify.recorder import Recorder
from syncverify.run import Leftovers, Observation, RankRun
from syncverify.scenario import Scenario
from syncverify.subject import (
    RunsMicroBatches,
    Subject,
    Synchronizer,
    VariesAccumulations,
    check_methods,
)
from syncverify.trace import Moment, Phase
from syncverify.vocabulary import PLAIN

MeshBuilder = Callable[[Scenario, torch.device], DeviceMesh]

BYTES_PER_MB = 2**20  # what d9d, DDP and Megatron call MB is a MiB


class SubjectRaisedError(Exception):
    """The subject raised on a legal scenario; the cause is its own exception."""

    def __init__(self, moment: Moment, original: BaseException) -> None:
        super().__init__(f"{moment}: {type(original).__name__}: {original}")
        self.moment = moment
        self.original = original


def play(
    scenario: Scenario,
    subject: Subject,
    *,
    rank: int,
    device: torch.device,
    result: RankRun,
    recorder: Recorder,
    mesh_builder: MeshBuilder = build_mesh,
) -> None:
    """Play a scenario on one rank of the default process group.

    Args:
        scenario: What to play; its mesh spans the default process group.
        subject: Whose factory makes the synchronizer.
        rank: Global rank.
        device: Where parameters live.
        result: Filled while playing, so that it survives a fault.
        recorder: Receives the trace; already connected to the process groups.
        mesh_builder: Makes the mesh of DTensor parameters.

    Raises:
        SubjectRaisedError: The subject raised.
        SubjectError: What the factory made lacks a part of the subject API.
    """
    result.events = recorder.events
    dtensors = subject.capabilities.tensors == "dtensor"
    mesh = mesh_builder(scenario, device) if dtensors else None
    model = build_model(scenario, rank=rank, device=device, mesh=mesh)
    recorder.watch(model.local_gradients)
    _RankProgram(scenario, subject, model, result, recorder).play()


class _RankProgram:
    def __init__(
        self,
        scenario: Scenario,
        subject: Subject,
        model: LocalModel,
        result: RankRun,
        recorder: Recorder,
    ) -> None:
        self._scenario = scenario
        self._subject = subject
        self._model = model
        self._result = result
        self._recorder = recorder
        self._original = {name: _fingerprint(p) for name, p in model.parameters.items()}

    def play(self) -> None:
        synchronizer = self._bind()
        for step in range(self._scenario.num_steps):
            self._play_step(synchronizer, step)
        last_step = self._scenario.num_steps - 1
        with self._calling("unbind", last_step):
            synchronizer.unbind()
        del synchronizer  # what it left behind shows without it
        self._result.leftovers = self._leftovers()
        self._play_after_unbind()

    def _bind(self) -> Synchronizer:
        with self._calling("bind", 0):
            synchronizer = self._subject.factory(
                self._model.param_groups(),
                self._scenario.bucket_cap_bytes / BYTES_PER_MB,
                self._num_backwards(step=0),
            )
        check_methods(synchronizer, self._subject.name)
        with self._calling("bind", 0):
            synchronizer.bind()
        return synchronizer

    def _num_backwards(self, step: int) -> int:
        """Count the backwards of a step that bring each parameter a gradient."""
        of_each = num_backwards(self._scenario.backward)
        return self._scenario.accumulations[step] * of_each

    def _play_step(self, synchronizer: Synchronizer, step: int) -> None:
        count = self._scenario.accumulations[step]
        if isinstance(synchronizer, VariesAccumulations) and step > 0:
            with self._calling("zero_grad", step):
                synchronizer.set_required_accumulations(self._num_backwards(step))
        for micro_batch in range(count):
            is_last = micro_batch == count - 1
            with self._calling("backward", step, micro_batch):
                self._run_micro_batch(synchronizer, step, micro_batch, is_last=is_last)
            if not is_last:  # after the last one, reductions are in flight
                self._observe("accumulated", step, micro_batch)
        with self._calling("wait", step):
            synchronizer.wait()
        self._observe("reduced", step)
        with self._calling("zero_grad", step):
            synchronizer.zero_grad()
        self._observe("zeroed", step)

    def _run_micro_batch(
        self, synchronizer: Synchronizer, step: int, micro_batch: int, *, is_last: bool
    ) -> None:
        def compute_loss() -> torch.Tensor:
            return self._loss(step, micro_batch)

        def compute_losses() -> Losses:
            return self._losses(step, micro_batch)

        run = functools.partial(run_backward, self._scenario.backward)
        if not isinstance(synchronizer, RunsMicroBatches):
            run(compute_losses())
        elif self._scenario.backward == PLAIN:
            synchronizer.run_micro_batch(compute_loss, is_last=is_last)
        else:
            driven: Any = synchronizer  # what takes drivers is no protocol of its own
            driven.run_micro_batch(compute_losses, is_last=is_last, run_backward=run)

    def _play_after_unbind(self) -> None:
        """Run one plain backward: the parameters must behave as if never managed."""
        step = self._scenario.num_steps
        for parameter in self._model.parameters.values():
            parameter.grad = None
        # The subject is gone: what happens is not its doing.
        off = self._recorder.not_recording_accesses()
        with self._calling("after_unbind", step), off:
            _backward(lambda: self._loss(step, 0))
        self._observe("unbound", step)

    def _loss(self, step: int, micro_batch: int) -> torch.Tensor:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.loss(step=step, micro_batch=micro_batch)

    def _losses(self, step: int, micro_batch: int) -> Losses:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.losses(
                step=step, micro_batch=micro_batch, as_rank=self._recorder.as_rank()
            )

    @contextmanager
    def _calling(
        self, phase: Phase, step: int, micro_batch: int | None = None
    ) -> Iterator[None]:
        moment = Moment(phase, step, micro_batch)
        try:
            with self._recorder.calling(moment):
                yield
        except SyncverifyError:
            raise  # the harness speaks, through the subject's call
        except (Exception, SystemExit) as error:  # an exit ends a rank like any other
            raise SubjectRaisedError(moment, error) from error

    def _observe(self, point: str, step: int, micro_batch: int | None = None) -> None:
        local = self._model.local_gradients()
        if point == "reduced":  # as an optimizer does, for whom gradients are made
            self._recorder.read("optimizer", local.values())
        copies = {
            name: local[name].cpu().clone() if name in local else None
            for name in self._model.parameters
        }
        self._result.observations.append(
            Observation(point, step, micro_batch, copies)  # type: ignore[arg-type]  # literals above
        )

    def _leftovers(self) -> Leftovers:
        parameters = self._model.parameters
        hooks = {
            name: _count_hooks(parameter) for name, parameter in parameters.items()
        }
        return Leftovers(
            hooks={name: count for name, count in hooks.items() if count},
            shared_gradients=_sharing_storage(self._model.local_gradients()),
            changed=tuple(
                name
                for name, parameter in parameters.items()
                if not _same(_fingerprint(parameter), self._original[name])
            ),
        )


def _backward(compute_loss: Callable[[], torch.Tensor]) -> None:
    compute_loss().backward()


def _fingerprint(parameter: nn.Parameter) -> tuple[torch.Tensor, bool]:
    return local_part(parameter).clone(), parameter.requires_grad


def _same(left: tuple[torch.Tensor, bool], right: tuple[torch.Tensor, bool]) -> bool:
    return torch.equal(left[0], right[0]) and left[1] == right[1]


def _count_hooks(parameter: nn.Parameter) -> int:
    # torch keeps these dictionaries on every tensor: its own way to list hooks, since
    # there is no public one (torch/_tensor.py, register_post_accumulate_grad_hook).
    registries = (
        parameter._post_accumulate_grad_hooks,  # noqa: SLF001
        parameter._backward_hooks,  # noqa: SLF001
    )
    return sum(len(registry) for registry in registries if registry)


def _sharing_storage(gradients: dict[str, torch.Tensor]) -> tuple[str, ...]:
    sharing: set[str] = set()
    for (one, first), (other, second) in itertools.combinations(gradients.items(), 2):
        same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        if same and first.numel() and second.numel():
            sharing |= {one, other}
    return tuple(name for name in gradients if name in sharing)
