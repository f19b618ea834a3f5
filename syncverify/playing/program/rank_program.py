"""The rank program: the training program that plays a scenario on one rank.

The same code runs on every backend. It calls the subject only through the subject API,
observes gradients only at points where the API allows to read them, and judges nothing.
Parameters are frozen at first where an event that unfreezes comes later. Then the actions of
`training_program` follow. After `unbind()` the program drops the subject and looks for
leftovers.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

import torch
from torch.distributed.device_mesh import DeviceMesh

from syncverify.playing.program.caller_streams import CallerStreams
from syncverify.playing.program.changes import (
    ReplacedGradients,
    change_parameters,
    freeze,
    update,
)
from syncverify.playing.program.gradient_forms import misfits_of
from syncverify.playing.program.graphs.backwards import run_backward
from syncverify.playing.program.graphs.errors import InjectedError
from syncverify.playing.program.graphs.hooks import install_lasting_hooks
from syncverify.playing.program.graphs.losses import Losses
from syncverify.playing.program.leftovers import (
    Before,
    calls_of_backward,
    held_by_subject,
)
from syncverify.playing.program.model import LocalModel, build_model
from syncverify.playing.program.own_parameters import (
    OwnParameters,
    UpdatesInBackward,
    local_part,
)
from syncverify.playing.program.subject_error import calling
from syncverify.playing.program.training_program import (
    Action,
    Backward,
    Call,
    Change,
    Drop,
    Evaluate,
    Make,
    Method,
    Observe,
    PlainBackward,
    Recover,
    Replace,
    Update,
    training_program,
)
from syncverify.playing.program.two_synchronizers import TwoSynchronizers
from syncverify.scenario.distribution import build_mesh
from syncverify.scenario.feature_table import MANY, PLAIN
from syncverify.scenario.layout import meshes_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.scenario.step_plan import num_micro_batches, used_parameters
from syncverify.subjects.subject import Subject
from syncverify.subjects.subject_api import (
    Evaluates,
    MarksByHand,
    OwnsGradients,
    RunsMicroBatches,
    Synchronizer,
    check_methods,
)
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import Moment, Phase
from syncverify.trace.run import Observation, RankRun
from syncverify.trace.source_lines import SourceLine

MeshBuilder = Callable[[MeshSpec, torch.device], DeviceMesh]

CPU: Final = torch.device("cpu")
BYTES_PER_MB = 2**20  # d9d, DDP and Megatron mean MiB when they say MB
_PHASES: Final[Mapping[Method, Phase]] = {
    "bind": "bind",
    "wait": "wait",
    "zero_grad": "zero_grad",
    "unbind": "unbind",
    "flush": "wait",
    "reset": "zero_grad",
    "set_required_accumulations": "zero_grad",
}


def play_part(
    scenario: Scenario,
    subject: Subject,
    rank: int,
    result: RankRun,
    recorder: Recorder,
    device: torch.device = CPU,
    *,
    mesh_builder: MeshBuilder = build_mesh,
) -> None:
    """Play a scenario, whose mesh spans the default process group, on one rank.

    `result` is filled while the program runs, so that it survives a fault. `recorder` is
    already connected to the process groups. `mesh_builder` makes the meshes of DTensors.
    """
    result.trace, result.engine = recorder.trace, recorder.engine
    meshes = None
    if subject.capabilities.tensors == "dtensor":
        listed = meshes_of(scenario.mesh, scenario.parameters)
        meshes = {each: mesh_builder(each, device) for each in listed}
    model = build_model(scenario, rank=rank, device=device, meshes=meshes)
    freeze(scenario, -1, model.parameters)
    if scenario.backward == "hooks_of_others":
        install_lasting_hooks(model.parameters.values())
    recorder.watch(model.local_gradients, model.parameters)
    streams = CallerStreams(scenario.launch, device)
    _RankProgram(scenario, subject, model, result, recorder, streams).play()


@dataclass
class _RankProgram:
    """The training program of one rank; the first fields are arguments of `play_part`."""

    _scenario: Scenario
    _subject: Subject
    _model: LocalModel
    _result: RankRun
    _recorder: Recorder
    _streams: CallerStreams
    _synchronizer: Synchronizer = field(init=False)
    _updates: UpdatesInBackward | None = None
    # Whether the last backward raised as the scenario wants.
    _has_failed: bool = False
    # Names of the parameters whose owner is known.
    _asked: set[str] = field(default_factory=set)
    # Functions of the subject that were called after `unbind()`.
    _called: tuple[SourceLine, ...] = ()

    def __post_init__(self) -> None:
        self._own = OwnParameters(self._model.parameters)
        self._before = Before(self._model, self._own)
        self._replaced = ReplacedGradients(self._model.parameters.values())
        if self._scenario.update == "in_backward":
            self._updates = UpdatesInBackward(self._own, self._recorder, self._update)

    def play(self) -> None:
        takes_count = self._subject.takes_count
        program = training_program(self._scenario, takes_count=takes_count)
        self._execute(program.start)
        for step in program.steps:
            self._execute(step.before)
            with self._recorder.not_recording_accesses():
                self._before.draws.draw()
            with self._streams.for_step(step.number):
                self._execute(step.within)
            self._execute(step.after)
            if self._scenario.num_steps >= MANY["steps"]:
                self._result.held.append(held_by_subject(self._synchronizer))
        self._replaced.let_go()
        self._execute([program.unbind])
        # Drop the last reference, so that only leftovers keep hooks and buffers alive.
        del self._synchronizer
        left = self._result.leftovers = self._before.leftovers()
        self._execute(program.after_unbind)
        self._result.leftovers = replace(left, called=self._called)

    def _execute(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Make():
                    self._make(action)
                case Call():
                    self._call(action)
                case Backward():
                    if not action.even_ranks_alone or self._model.rank % 2 == 0:
                        self._run_micro_batch(action)
                case Evaluate():
                    self._evaluate(action.step)
                case Recover():
                    hidden = action.if_hidden
                    self._execute([action.call] if self._has_failed else hidden)
                case Change():
                    self._change_parameters(action)
                case Replace():
                    with self._recorder.optimizing():
                        self._replaced.replace(action)
                case Drop():
                    parameters = [*self._model.parameters.values()]
                    for parameter in parameters[action.first :: action.every]:
                        parameter.grad = None
                case Update():
                    self._run_optimizer()
                case PlainBackward():
                    self._play_after_unbind(action.step)
                case Observe():
                    self._observe(action)
                case _:
                    assert_never(action)

    def _make(self, action: Make) -> None:
        make = self._subject.factory
        if self._scenario.synchronizers == "two":
            make = functools.partial(TwoSynchronizers, make)
        if self._scenario.replicas != "equal":
            self._own.take_next_values()
        with self._streams.for_bind(), self._calling("bind", action.step):
            self._synchronizer = make(
                self._model.param_groups(action.step),
                self._scenario.bucket_cap_bytes / BYTES_PER_MB,
                *([] if action.count is None else [action.count]),
            )
        takes_count = action.count is not None
        check_methods(self._synchronizer, self._subject.name, takes_count=takes_count)

    def _call(self, action: Call) -> None:
        called = getattr(self._synchronizer, action.method, None)
        if not callable(called):
            if action.otherwise is not None:
                self._call(replace(action, method=action.otherwise, otherwise=None))
            return
        phase = _PHASES[action.method]
        is_outside = phase in {"bind", "unbind"}
        stream = self._streams.for_bind() if is_outside else nullcontext()
        if action.method == "bind" and self._scenario.replicas != "equal":
            self._own.take_next_values()
        moment = Moment(phase, action.step)
        named = action.method if action.method == "set_required_accumulations" else None
        updating: AbstractContextManager[None] = nullcontext()
        if self._updates is not None:
            updating = self._updates.around(phase, self._synchronizer)
        with stream, calling(self._recorder, moment, named), updating:
            called(*action.arguments)
        if action.method == "bind":
            self._ask_owners(action.step)

    def _ask_owners(self, step: int) -> None:
        """Ask for the owner of each parameter that is new."""
        synchronizer: Synchronizer = self._synchronizer
        is_asked = self._subject.capabilities.gradients == "owner"
        if is_asked and isinstance(synchronizer, OwnsGradients):
            born = {spec.name for spec in self._model.born(step)} - self._asked
            self._asked |= born
            parameters = self._model.parameters
            with self._calling("bind", step):
                owned = {n for n in born if synchronizer.owner(parameters[n])}
            self._result.owned = (self._result.owned or frozenset()) | owned

    def _change_parameters(self, action: Change) -> None:
        # Recorded as a call of the subject: torch raises where the subject's hooks or
        # views forbid the change, and that error is the subject's. The accesses are not.
        ours = self._recorder.not_recording_accesses()
        with self._own.changing(), self._calling("zero_grad", action.step), ours:
            change_parameters(self._scenario, action, self._model.parameters)

    def _run_optimizer(self) -> None:
        # A write in place fails on other gradients, and their property tells why.
        misfits = self._result.observations[-1].misfits
        local = self._model.local_gradients()
        fitting = {name: local[name] for name in local if name not in misfits}
        gradients = self._read_by_optimizer(fitting)
        parameters = self._model.parameters.values()
        trained = [p for p in parameters if p.grad is not None and p.requires_grad]
        with self._own.changing(), self._recorder.optimizing():
            self._update([*map(local_part, trained)], gradients)

    def _update(
        self, trained: list[torch.Tensor], gradients: list[torch.Tensor]
    ) -> None:
        if self._subject.capabilities.owns_parameters:
            trained = []
        update(trained, gradients, keeps_values=self._scenario.module != PLAIN)

    def _run_micro_batch(self, action: Backward) -> None:
        self._has_failed = False
        self._own.had_forward = True
        failing = suppress(InjectedError) if action.fails else nullcontext()
        updating: AbstractContextManager[None] = nullcontext()
        if self._updates is not None:
            updating = self._updates.in_backward(is_last=action.is_last)
        backward = self._calling("backward", action.step, action.micro_batch)
        with failing, updating, backward:
            self._has_failed = action.fails
            self._run_backward(action)
            self._has_failed = False

    def _run_backward(self, action: Backward) -> None:
        synchronizer: Synchronizer = self._synchronizer
        if not isinstance(synchronizer, RunsMicroBatches):
            run_backward(self._scenario.backward, self._losses(action))
        elif self._scenario.backward == PLAIN:
            synchronizer.run_micro_batch(
                lambda: self._loss(action), is_last=action.is_last
            )
        else:
            self._hand_over_backward(synchronizer, action)

    def _evaluate(self, step: int) -> None:
        """Run a forward in the subject's own way, if it has one."""
        synchronizer: Synchronizer = self._synchronizer
        wraps_forward = isinstance(synchronizer, RunsMicroBatches)
        with self._calling("evaluate", step), torch.no_grad():
            if wraps_forward and isinstance(synchronizer, Evaluates):
                synchronizer.evaluate(lambda: self._evaluated(step))
            else:
                self._evaluated(step)

    def _evaluated(self, step: int) -> torch.Tensor:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.evaluated(step=step, using=self._forward_of)

    # The protocol leaves out `run_backward`, which only some of its subjects take: `Any`.
    def _hand_over_backward(self, synchronizer: Any, action: Backward) -> None:
        """Let a subject run forward, and pass our backward on to it."""
        computed: list[Losses] = []

        # Wrappers look for tensors in the output of a forward, and DDP puts nodes behind
        # them. So the output is a dict, and no class of ours.
        def compute_terms() -> dict[str, torch.Tensor]:
            computed.append(self._losses(action))
            return dict(computed[-1].terms)

        def run(terms: Mapping[str, torch.Tensor]) -> None:
            losses = replace(computed[-1], terms=terms)
            run_backward(self._scenario.backward, losses)

        synchronizer.run_micro_batch(
            compute_terms, is_last=action.is_last, run_backward=run
        )

    def _play_after_unbind(self, step: int) -> None:
        """Run one plain backward: parameters must behave as if they were never managed."""
        # The subject is gone, so these accesses cannot be its mistakes.
        not_recording = self._recorder.not_recording_accesses()
        with self._calling("after_unbind", step), not_recording:
            called = calls_of_backward(self._loss(Backward(step, 0, agreed=1)))
            # The functions of a layer are in a user's files too.
            if called and self._scenario.module != PLAIN:
                loss = self._model.copy().loss(step=step, micro_batch=0)
                own = calls_of_backward(loss)
                called = tuple(line for line in called if line not in own)
        self._called = called

    def _loss(self, action: Backward) -> torch.Tensor:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.loss(
                step=action.step,
                micro_batch=action.micro_batch,
                using=self._forward_of,
                fails=action.fails,
            )

    def _losses(self, action: Backward) -> Losses:
        synchronizer: Synchronizer = self._synchronizer
        with self._recorder.computing_loss(self._model.parameters.values()):
            losses = self._model.losses(
                step=action.step,
                micro_batch=action.micro_batch,
                using=self._forward_of,
                fails=action.fails,
                as_rank=self._recorder.as_rank,
            )
        if not isinstance(synchronizer, MarksByHand):
            return losses
        return replace(losses, mark_ready=synchronizer.mark_ready)

    @contextmanager
    def _forward_of(self, name: str) -> Iterator[None]:
        """Switch to the stream of a parameter's part of the forward."""
        used = [self._model.parameters[name]]
        with self._streams.for_forward(name), self._recorder.computing_loss(used):
            yield

    def _calling(
        self, phase: Phase, step: int, micro_batch: int | None = None
    ) -> AbstractContextManager[None]:
        """Record a call of the subject, and tell its exceptions from the harness's."""
        return calling(self._recorder, Moment(phase, step, micro_batch))

    def _read_by_optimizer(
        self, gradients: Mapping[str, torch.Tensor]
    ) -> list[torch.Tensor]:
        """List the gradients that an optimizer reads: not those that another rank owns."""
        if self._subject.capabilities.gradients == "all ranks":
            return list(gradients.values())
        owned = self._result.owned or ()
        return [gradient for name, gradient in gradients.items() if name in owned]

    def _observe(self, action: Observe) -> None:
        if self._own.takes_values and self._own.had_forward:
            self._own.take_values()
            self._result.bound = self._result.bound or self._own.values()
        local = self._model.local_gradients()
        is_reduced = action.point == "reduced"
        if is_reduced:
            # An optimizer would read here, on the current stream. The copies below are the
            # harness's own, and wait for the device; they stay out of the trace.
            self._recorder.read("read", self._read_by_optimizer(local))
            if self._updates is not None:
                last = num_micro_batches(self._scenario, action.step) - 1
                at = self._model.rank, action.step, last
                used = used_parameters(self._scenario, *at)
                local = self._updates.take(local, {spec.name for spec in used})
        copies = {
            name: local[name].cpu().clone() if name in local else None
            for name in self._model.parameters
        }
        self._result.observations.append(
            Observation(
                point=action.point,
                step=action.step,
                micro_batch=action.micro_batch,
                gradients=copies,
                partial=self._model.partial_gradients(),
                misfits=misfits_of(self._model.parameters) if is_reduced else {},
            )
        )
