"""Names of torch on the threads of ranks whose subject sees CUDA devices.

`device = "cuda"` of a contract puts these functions behind torch's names, for one run.

Answers
    A line that asks where a tensor is, or for the GPU, hears of `cuda:N`, where N is the rank's
    number on its machine. So do lines of torch: an optimizer chooses its algorithm for GPUs.
    Lines of the harness hear the truth, and lines of torch that are near to kernels.
Places
    A CUDA device that any line passes to torch becomes the CPU.

Memory of the host
    A tensor that a line makes without a device, or on the CPU, lies in memory of the host, such
    as the step counters of AdamW.

C++ code goes on to see CPU tensors, and so does a function of torch that was imported by name
before the run.
"""

import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, _init_utils

from syncverify.scenario.settings import NCCL_NAMES
from syncverify.sim.device.device_functions import GPU, Replacement
from syncverify.sim.device.host_copies import FACTORIES
from syncverify.sim.device.nccl_names import SeenBackends
from syncverify.sim.device.seen_device import SeenDevice
from syncverify.sim.device.streams import own_streams
from syncverify.sim.device.torch_internals import (
    GROUP_TENSORS,
    PARSE_TO,
    as_plain_tensors,
    default_device,
)
from syncverify.sim.device.virtual_streams import named_device
from syncverify.sim.process_wide.rank_variables import devices_per_machine
from syncverify.sim.turns.own_errors import OWN_ERRORS_NOTED
from syncverify.trace.stacks import sees_device_above

_CPU = torch.device("cpu")
_CUDA_VERSION = "12.8"  # of a torch that has none
_NCCL_VERSION = (2, 29, 3)

_TENSORS = {
    "device": lambda _, line, tensor: line.seen.of(tensor),
    "is_cuda": lambda _, line, tensor: line.seen.of(tensor).type == "cuda",
    "is_cpu": lambda _, line, tensor: line.seen.of(tensor).type == "cpu",
}
_CUDA: dict[str, Replacement] = {
    "current_device": lambda _, line: line.seen.device.index,
    "device_count": lambda *_: devices_per_machine(),
    "get_device_capability": lambda *_, **__: (GPU.major, GPU.minor),
    "get_device_name": lambda *_, **__: GPU.name,
    "get_device_properties": lambda *_, **__: GPU,
    "init": lambda *_: None,
    "is_available": lambda *_: True,
    "is_bf16_supported": lambda *_, **__: True,
    "is_initialized": lambda *_: True,
}
# A rank sees the generator of its own device alone.
_GENERATOR: dict[str, Replacement] = {
    "get_rng_state": lambda _, line, *__: _state(line),
    "get_rng_state_all": lambda _, line: [_state(line)],
    "initial_seed": lambda _, line: line.seen.generator.seed,
    "manual_seed": lambda _, line, seed: line.seen.generator.manual_seed(seed),
    "manual_seed_all": lambda _, line, seed: line.seen.generator.manual_seed(seed),
    "set_rng_state": lambda _, line, state, *__: line.seen.generator.set_state(state),
    "set_rng_state_all": lambda _, line, states: line.seen.generator.set_state(*states),
}
_ACCELERATOR: dict[str, Replacement] = {
    "current_accelerator": lambda *_, **__: torch.device("cuda"),
    "current_device_idx": lambda _, line: line.seen.device.index,
    "current_device_index": lambda _, line: line.seen.device.index,
    "device_count": lambda *_: devices_per_machine(),
    "is_available": lambda *_: True,
}
# By module: the names that are answered here.
ANSWERED = {torch.cuda: {*_CUDA, *_GENERATOR}, torch.accelerator: {*_ACCELERATOR}}
# Modules of torch that have functions of these names, also those that import them by name.
_CUDA_MODULES = "torch.cuda", "torch.cuda.memory", "torch.cuda.random"
_GROUP_MODULES = (
    "torch.distributed.distributed_c10d",
    "torch.distributed.fsdp._optim_utils",
)
_UNPINNED = ("empty_permuted", "scalar_tensor", "tril_indices", "triu_indices")


def seen_names() -> Iterator[tuple[Any, str, Any]]:
    """Yield each owner, the name of its attribute, and the replacement."""
    for name, answer in _TENSORS.items():
        own = getattr(torch.Tensor, name).__get__
        yield torch.Tensor, name, _Attribute(own, answer)
    own = DeviceMesh.device_type.__get__
    mesh_type = _answering(own, lambda _, __, mesh: own(mesh).replace("cpu", "cuda"))
    yield DeviceMesh, "device_type", property(mesh_type)
    yield torch.version, "cuda", torch.version.cuda or _CUDA_VERSION
    for owner, name, answer in _answers():
        yield owner, name, _answering(getattr(owner, name), answer)
    for owner, name, place in _places():
        yield owner, name, _placing(getattr(owner, name), place)


class _Attribute(property):
    """An attribute of tensors that answers lines as that of a CUDA tensor would.

    torch passes the `__get__` of an attribute to `__torch_function__`, where classes look it up
    in tables that they made at import: so it stays torch's own.
    """

    def __init__(self, own: Replacement, answer: Replacement) -> None:
        super().__init__(_answering(own, answer))
        vars(self)["__get__"] = own


def _answers() -> Iterator[tuple[Any, str, Replacement]]:
    yield torch.Tensor, "get_device", _index
    yield from _by_name(_CUDA_MODULES, _CUDA | _GENERATOR)
    yield *GROUP_TENSORS, _grouped
    yield from _by_name(_GROUP_MODULES, _DEVICES_OF_GROUPS)
    yield from ((torch.accelerator, *answer) for answer in _ACCELERATOR.items())
    yield torch.cuda.nccl, "version", lambda *_: _NCCL_VERSION
    for owner in (dist, dist.distributed_c10d):
        yield owner, "is_nccl_available", lambda *_: True


def _by_name(
    modules: Iterable[str], answers: dict[str, Replacement]
) -> Iterator[tuple[Any, str, Replacement]]:
    """Yield the functions of some names in each module that the process has imported."""
    for owner in filter(None, map(sys.modules.get, modules)):
        known = vars(owner)
        yield from ((owner, name, answers[name]) for name in answers if name in known)


def _places() -> Iterator[tuple[Any, str, Replacement]]:
    for name in (*FACTORIES, *_UNPINNED):
        yield torch, name, _make
    for name in ("as_tensor", "asarray", "tensor"):
        yield torch, name, _take_data
    for name in ("from_dlpack", "from_numpy", "frombuffer"):
        yield torch, name, _take_bytes
    yield torch.utils.dlpack, "from_dlpack", _take_bytes
    for name in ("empty", "empty_strided", "full", "ones", "tensor", "zeros"):
        yield torch.Tensor, f"new_{name}", _make
    yield torch.Tensor, "cpu", _to_host
    yield torch.Tensor, "cuda", _to_device
    yield torch.Tensor, "to", _to
    yield torch.Tensor, "type", _type
    yield DeviceMesh, "__init__", _mesh
    yield torch, "load", _load
    yield FullyShardedDataParallel, "__init__", _fsdp
    yield _init_utils, "_get_compute_device", _with_own_device
    yield _init_utils, "_get_device_from_device_id", _with_own_device
    yield torch.Tensor, "_make_wrapper_subclass", _wrap
    yield *PARSE_TO, _numbered


class _Line(NamedTuple):
    """The line that calls a function, and what the subject sees."""

    seen: SeenDevice
    backends: SeenBackends
    sees: bool  # the line sees the device


def _calling_line() -> _Line | None:
    """Return the line that called the caller; None where no subject sees a device."""
    streams = own_streams()
    if streams is None or streams.seen is None:
        return None
    sees = streams.serves_subject and sees_device_above(3)
    return _Line(streams.seen, streams.backends, sees)


def _answering(original: Replacement, answer: Replacement) -> Replacement:
    """Let a function answer lines as a CUDA device would."""

    def function(*args: Any, **kwargs: Any) -> Any:
        line = _calling_line()
        if line is None or not line.sees:
            return original(*args, **kwargs)
        with OWN_ERRORS_NOTED:
            return answer(original, line, *args, **kwargs)

    return function


def _placing(original: Replacement, place: Replacement) -> Replacement:
    """Let a function take CUDA devices from any line, and note what a line places."""

    def function(*args: Any, **kwargs: Any) -> Any:
        line = _calling_line()
        if line is None:
            return original(*args, **kwargs)
        if line.seen.is_placing and place is not _wrap:
            # The call above notes where the result lies.
            line = line._replace(sees=False)

        def placing(*args: Any, **kwargs: Any) -> Any:
            # A function mode gets the function by its name, and calls it again.
            with line.seen.placing():
                return original(*args, **kwargs)

        with OWN_ERRORS_NOTED:
            return place(placing, line, *args, **kwargs)

    return function


def _index(original: Replacement, line: _Line, tensor: torch.Tensor) -> Any:
    index = line.seen.of(tensor).index
    return original(tensor) if index is None else index


def _state(line: _Line) -> torch.Tensor:
    state = line.seen.generator.state()
    line.seen.keep_on_host(state)
    return state


def _device_of_group(
    original: Replacement, line: _Line, group: Any = None, *args: Any
) -> Any:
    """Return the device that objects go through: NCCL moves memory of GPUs alone."""
    if line.backends.of(getattr(group, "group_name", "")) in NCCL_NAMES:
        return line.seen.device
    return original(group, *args)


_DEVICES_OF_GROUPS: dict[str, Replacement] = {
    "_get_object_coll_device": lambda *args: str(_device_of_group(*args)),
    "_get_pg_default_device": _device_of_group,
}


def _grouped(original: Replacement, line: _Line, *args: Any, **options: Any) -> Any:
    """Group tensors by the device that a line sees, where C++ code finds the true one."""
    groups = original(*args, **options)
    return {
        (line.seen.of(tensors[0][0]), dtype): (tensors, indices)
        for (_, dtype), (tensors, indices) in groups.items()
    }


def _wrap(
    original: Replacement, line: _Line, *args: Any, device: Any = None, **options: Any
) -> Any:
    """Make a tensor without memory of its own, which is where the line says."""
    wanted = default_device() if device is None else named_device(device)
    made = original(*args, device=_real(line, wanted), **options)
    if line.sees and wanted.type == "cpu":
        with as_plain_tensors():  # its parts lie on the host
            line.seen.memory.place_on_host(made)
    return made


def _real(line: _Line, device: torch.device) -> torch.device:
    if device.type != "cuda":
        return device
    line.seen.check_number(device.index)
    return _CPU


def _make(
    original: Replacement, line: _Line, *args: Any,
    device: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """Make a tensor, on the device of a tensor that comes first if none is named."""
    source = _tensor_in(args)
    if device is None and source is not None:
        wanted = line.seen.of(source)
        make = functools.partial(original, *args, **options)
    else:
        wanted = default_device() if device is None else named_device(device)
        make = functools.partial(original, *args, device=_real(line, wanted), **options)
    if not line.sees or wanted.type != "cpu" or "out" in options:
        return make()
    if options.get("pin_memory"):
        return make()  # places itself on the host
    # The host fills it, before anybody else can.
    with line.seen.memory.not_recording_accesses():
        made = make()
    line.seen.keep_on_host(made)
    return made


def _tensor_in(args: tuple[Any, ...]) -> Any:
    first = next(iter(args), None)
    return first if isinstance(first, torch.Tensor) else None


def _take_data(original: Replacement, line: _Line, *args: Any, **options: Any) -> Any:
    """Make a tensor of data; that of another tensor may lie on another device."""
    source, device = _tensor_in(args), options.pop("device", None)
    wanted = None if device is None else named_device(device)
    if source is None or (wanted and wanted.type not in {"cpu", "cuda"}):
        made = _make(original, line, *args, device=device, **options)
        is_lent = wanted is not None and wanted.type == "cuda" and _is_lent(made)
        return _to_device(original, line, _lend(made, line)) if is_lent else made
    made = original(*args, **options)
    if wanted is None or not line.sees or wanted.type == line.seen.of(source).type:
        return made
    return made.cpu() if wanted.type == "cpu" else torch.empty_like(made).copy_(made)


def _take_bytes(original: Replacement, line: _Line, *args: Any, **options: Any) -> Any:
    """Make a tensor over the bytes of another object; those of a tensor stay where they are."""
    made = original(*args, **options)
    is_tensors = _tensor_in(args) is not None or "PyCapsule" in str(type(args[0]))
    return made if is_tensors else _lend(made, line)


def _lend(made: Any, line: _Line) -> Any:
    if line.sees:
        line.seen.keep_on_host(made)
    return made


def _is_lent(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor lies over bytes that torch has not allocated."""
    is_strided = tensor.layout is torch.strided and not tensor.is_meta
    return is_strided and not tensor.untyped_storage().resizable()


def _to_host(
    original: Replacement, line: _Line, tensor: Any, *args: Any, **options: Any
) -> Any:  # fmt: skip
    if line.seen.of(tensor).type == "cpu":
        return tensor
    line.seen.memory.storage_of(tensor).is_on_device = True  # whatever its dtype
    copied = original(tensor, *args, **options)
    if copied is not tensor:  # the harness gets the tensor itself
        line.seen.keep_on_host(copied)
    return copied


def _to_device(
    _: Replacement, line: _Line, tensor: Any, device: Any = None, *flags: Any,
    **options: Any,
) -> Any:  # fmt: skip
    wanted = line.seen.device if device is None else named_device(device)
    if flags:
        options["non_blocking"] = flags[0]
    return tensor.to(wanted, **options)


def _to(
    original: Replacement, line: _Line, tensor: Any, *args: Any, **options: Any
) -> Any:  # fmt: skip
    by_name = "device" in options
    named = options.pop("device") if by_name else args[0] if args else None
    rest = args if by_name else args[1:]
    if not isinstance(named, int | str | torch.device):
        return original(tensor, *((named, *rest) if not by_name else rest), **options)
    wanted, now = named_device(named), line.seen.of(tensor)
    if wanted.type == "cpu" != now.type and (line.sees or isinstance(named, str)):
        return _to_host(lambda t: original(t, "cpu", *rest, **options), line, tensor)
    if wanted.type == now.type == "cpu":
        return original(tensor, "cpu", *rest, **options)  # the host's, so no copy to it
    moved = original(tensor, _real(line, wanted), *rest, **options)
    if moved is tensor and wanted.type == "cuda" and now.type == "cpu":
        return torch.empty_like(tensor).copy_(tensor)
    return moved


def _numbered(original: Replacement, _: _Line, *args: Any, **options: Any) -> Any:
    """Read the arguments of `Module.to`, the first of which may be the number of a GPU."""
    if args and isinstance(args[0], int):
        args = named_device(args[0]), *args[1:]
    return original(*args, **options)


def _type(
    original: Replacement, line: _Line, tensor: Any, dtype: Any = None, **options: Any
) -> Any:  # fmt: skip
    if dtype is None:
        name = original(tensor)
        is_seen = line.sees and line.seen.of(tensor).type == "cuda"
        return name.replace("torch.", "torch.cuda.", 1) if is_seen else name
    if isinstance(dtype, type):
        dtype = f"{dtype.__module__}.{dtype.__name__}"
    if isinstance(dtype, str):
        dtype = dtype.replace("torch.cuda.", "torch.")
    return original(tensor, dtype, **options)


def _fsdp(
    original: Replacement, _: _Line, *args: Any, device_id: Any = None, **options: Any
) -> None:  # fmt: skip
    named = None if device_id is None else named_device(device_id)
    original(*args, device_id=named, **options)


def _with_own_device(original: Replacement, line: _Line, *args: Any) -> Any:
    """Let FSDP1 ask for the device of its rank, and not for a number, which torch refuses."""
    handle = types.SimpleNamespace(current_device=lambda: line.seen.device)
    return original(*args[:-1], handle)


def _load(
    original: Replacement, line: _Line, file: Any, map_location: Any = None,
    *args: Any, **options: Any,
) -> Any:  # fmt: skip
    """Load a file; what it holds counts as memory of the device."""
    if isinstance(map_location, str | torch.device):
        map_location = _real(line, torch.device(map_location))
    return original(file, map_location, *args, **options)


def _mesh(
    original: Replacement, _: _Line, mesh: Any, device_type: str, *args: Any, **options: Any
) -> None:  # fmt: skip
    original(mesh, "cpu" if device_type == "cuda" else device_type, *args, **options)
