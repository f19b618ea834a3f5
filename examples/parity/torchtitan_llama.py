"""torchtitan's debug Llama, two layers of it, by torchtitan's own `parallelize_llama`."""

import torch
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.parallelize import parallelize_llama
from torchtitan.models.llama3.sharding import set_llama3_sharding_config

layouts = ["dp=4", "tp=4", "dp=2,tp=2"]
steps = 1
dtype = torch.float32
BACKEND = "partial_dtensor"


def build():
    config = model_registry("debugmodel").model
    del config.layers[2:]
    for layer in config.layers:  # flex attention needs a compiler
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    set_llama3_sharding_config(config, enable_sp=True)
    model = config.build()
    model.init_states(buffer_device=torch.device("cuda"))
    return model.cuda()


def parallelize(model, mesh):
    size = dict(zip(mesh.mesh_dim_names, mesh.shape, strict=True))
    parallel_dims = ParallelDims(
        1, size.get("dp", 1), 1, size.get("tp", 1), 1, 1, mesh.size(), BACKEND
    )
    training = TrainingConfig(mixed_precision_param="float32")
    parallelize_llama(
        model,
        parallel_dims=parallel_dims,
        training=training,
        parallelism=ParallelismConfig(spmd_backend=BACKEND),
        compile_config=CompileConfig(enable=False),
        ac_config=None,
        dump_folder="",
    )


def batch():
    return torch.randint(0, 2048, (4, 17), device="cuda")


def loss(model, batch):  # torchtitan adds gradients, and divides by all tokens itself
    logits = model(batch[:, :-1])
    logits = logits.full_tensor() if isinstance(logits, DTensor) else logits
    target = batch[:, 1:].flatten()
    return cross_entropy(logits.flatten(0, 1), target, reduction="sum") / 64
