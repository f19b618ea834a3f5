"""The parameters of a scenario, and tensors, as lines of a script."""

import keyword
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from syncverify.playing.program.model import LocalModel, build_model
from syncverify.scenario import specs
from syncverify.scenario.distribution import in_format, rank_tensor
from syncverify.scenario.layout import mesh_of
from syncverify.scenario.scenario import Scenario

# Names that the script gives to its own values.
_TAKEN = frozenset([
    "actual", "check", "dist", "expected", "folder", "local", "loss", "mesh",
    "reshaped_mesh", "transposed_mesh", "multiprocessing", "nn", "rank", "run",
    "synchronizer", "sys", "tempfile", "terms", "torch", "train",
])  # fmt: skip
_SPECIAL = {"inf": "torch.inf", "-inf": "-torch.inf", "nan": "torch.nan"}


def variable_names(scenario: Scenario, taken: Collection[str]) -> dict[str, str]:
    """Return the variable of each parameter, by its name."""
    names = {spec.name: spec.name for spec in scenario.parameters}
    for position, name in enumerate(names):
        is_known = name in _TAKEN or name in taken or keyword.iskeyword(name)
        if is_known or not (name.isidentifier() and name.isascii()):
            names[name] = f"parameter_{position}"
    return names


def mesh_lines(scenario: Scenario) -> Iterator[str]:
    """Yield the lines that make the device meshes."""
    for word, mesh in _meshes(scenario).items():
        names = f", mesh_dim_names={mesh.axis_names}" if mesh.axis_names else ""
        if mesh.order == "row_major":
            yield f'{_variable(word)} = init_device_mesh("cpu", {mesh.shape}{names})'
        else:
            ranks = rank_tensor(mesh).tolist()
            yield f'{_variable(word)} = DeviceMesh("cpu", torch.tensor({ranks}){names})'


def _meshes(scenario: Scenario) -> dict[str, specs.MeshSpec]:
    """Return the meshes of a scenario, its own one first, by their word of `on_mesh`."""
    others = {s.on_mesh: mesh_of(scenario.mesh, s) for s in scenario.parameters}
    return {specs.OWN_MESH: scenario.mesh, **others}


def _variable(word: str) -> str:
    return "mesh" if word == specs.OWN_MESH else f"{word}_mesh"


def parameter_lines(
    scenario: Scenario, variables: Mapping[str, str], *, uses_mesh: bool
) -> Iterator[str]:
    """Yield the lines that make the parameters; replicas have equal values."""
    cpu = torch.device("cpu")
    ranks = range(scenario.mesh.num_ranks)
    models = [build_model(scenario, rank=r, device=cpu, meshes=None) for r in ranks]
    for spec in scenario.parameters:
        name = variables[spec.name]
        values = {r: models[r].parameters[spec.name].detach() for r in ranks}
        value = tensor_by_rank(values, spec.dtype, spec.memory_format)
        if uses_mesh and spec.placements is not None:
            value = _distributed(scenario, spec, value)
        grad = "" if spec.requires_grad else ", requires_grad=False"
        yield f"{name} = nn.Parameter({value}{grad})"
        if spec.grad_dtype is not None:
            yield f"{name}.grad_dtype = torch.{spec.grad_dtype}"


def _distributed(scenario: Scenario, spec: specs.ParameterSpec, value: str) -> str:
    codes, whole_mesh = spec.placements or (), mesh_of(scenario.mesh, spec)
    mesh = _variable(spec.on_mesh)
    if specs.ABSENT in codes:
        own = zip(whole_mesh.axis_names, codes, strict=True)
        mesh += f"[{tuple(name for name, code in own if code != specs.ABSENT)}]"
    placements = ", ".join(
        _placement(whole_mesh, codes, axis)
        for axis, code in enumerate(codes)
        if code != specs.ABSENT
    )
    whole = ""
    if any(specs.sharded_dim(code) is not None for code in codes):
        # Shards may be uneven, and DTensor takes the shape from the local part.
        stride = in_format(
            torch.empty(spec.global_shape, device="meta"), spec.memory_format
        ).stride()
        whole = f", shape=torch.Size({spec.global_shape}), stride={stride}"
    return (
        f"DTensor.from_local({value}, {mesh}, [{placements}], run_check=False{whole})"
    )


def _placement(mesh: specs.MeshSpec, codes: specs.Placements, axis: int) -> str:
    dim = specs.sharded_dim(codes[axis])
    if dim is None:
        return "Replicate()"
    if codes[axis] != specs.strided_shard(dim):
        return f"Shard({dim})"
    factor = specs.split_factor(mesh, codes, axis)
    return f"_StridedShard({dim}, split_factor={factor})"


def local_in_graph(spec: specs.ParameterSpec, name: str, *, uses_mesh: bool) -> str:
    """Return the expression of this rank's part of a parameter, in a loss."""
    codes = [code for code in spec.placements or () if code != specs.ABSENT]
    if not uses_mesh or spec.placements is None:
        return name
    if specs.PARTIAL not in codes:
        return f"{name}.to_local()"
    arriving = ", ".join(
        "Partial()" if code == specs.PARTIAL else f"{name}.placements[{axis}]"
        for axis, code in enumerate(codes)
    )
    return f"{name}.to_local(grad_placements=[{arriving}])"


def groups_text(scenario: Scenario, variables: Mapping[str, str]) -> str:
    """Return the parameter groups as the subject takes them."""
    # The model lists the variables of its parameters.
    names: Mapping[str, str] = variables
    groups = LocalModel(scenario, 0, names).param_groups(0)  # type: ignore[arg-type]
    listed = (f"[{', '.join(map(str, group))}]" for group in groups)
    return f"[{', '.join(listed)}]"


def tensor_by_rank(
    values: Mapping[int, torch.Tensor], dtype: str, memory_format: str = "contiguous"
) -> str:
    """Return an expression for a tensor, by global rank; where they differ, it reads `rank`."""
    typed = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if len({value.shape for value in values.values()}) > 1:
        return _by_rank(
            {r: tensor_by_rank({r: v}, dtype, memory_format) for r, v in values.items()}
        )
    value = next(iter(values.values()))
    if not value.numel():
        return f"torch.zeros({tuple(value.shape)}{typed})"
    numbers = {r: _number_text(v.double().tolist()) for r, v in values.items()}
    text = f"torch.tensor({_by_rank(numbers)}{typed})"
    plain = value.contiguous()
    is_laid_out = in_format(plain, memory_format).stride() != plain.stride()
    return f"in_format({text}, {memory_format!r})" if is_laid_out else text


def _number_text(number: Any) -> str:
    if isinstance(number, list):
        return f"[{', '.join(map(_number_text, number))}]"
    return _SPECIAL.get(str(number), str(number))


def _by_rank(texts: Mapping[int, str]) -> str:
    """Return one expression for texts that may differ between ranks."""
    if len({*texts.values()}) == 1:
        return next(iter(texts.values()))
    if [*texts] == [*range(len(texts))]:
        return f"[{', '.join(texts.values())}][rank]"
    listed = ", ".join(f"{rank}: {text}" for rank, text in texts.items())
    return f"{{{listed}}}[rank]"
