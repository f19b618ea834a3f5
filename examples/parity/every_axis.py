"""A GPT with experts on 18 layouts, each of up to three of five axes, as in torchtitan#3029.

The axis `dp` shards parameters, and `ep` shards them and splits the experts as well.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_gather, all_to_all_single
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy

layouts = [
    "dp=1", "dp=2", "pp=2", "cp=2", "tp=2", "pp=2,dp=2,tp=2", "cp=2,dp=2,tp=2",
    "pp=2,cp=2,tp=2", "pp=2,cp=2,dp=2", "ep=2", "pp=2,ep=2,tp=2", "cp=2,ep=2,tp=2",
    "pp=2,cp=2,ep=2", "ep=8", "pp=4", "pp=8", "tp=4", "cp=4",
]  # fmt: skip
split, own = {"dp": 0, "ep": 0, "cp": 1}, {"*.experts": {"ep": 0}}
steps = 1
WIDTH, HEAD, WORDS = 8, 2, 16
COLUMNS, ROWS = ColwiseParallel(), RowwiseParallel()
PLAN = {
    "q": COLUMNS,
    "k": COLUMNS,
    "v": COLUMNS,
    "out": ROWS,
    "up": COLUMNS,
    "down": ROWS,
}


class Block(nn.Module):
    """Attention, experts of which each sees all words, and a layer up and down."""

    cp = ep = None

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        layers = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.q, self.k, self.v, self.out = layers
        self.gate = nn.Linear(WIDTH, 8)
        self.experts = nn.Parameter(torch.randn(8, WIDTH, WIDTH) / 4)
        self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        x = x + self.mix(self.norms[1](x).flatten(0, 1)).view_as(x)
        return x + self.down(torch.tanh(self.up(self.norms[2](x))))

    def attend(self, x):
        length, first = x.shape[1], 0
        rest = torch.cat([self.k(x), self.v(x)], -1)
        if self.cp is not None:
            first = self.cp.rank() * length
            rest = torch.cat(all_gather(rest.contiguous(), self.cp), 1)
        q, k, v = (
            each.unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for each in (self.q(x), *rest.chunk(2, -1))
        )
        place = torch.arange(k.shape[2], device=x.device)
        is_seen = place <= place[first : first + length, None]
        scores = (q @ k.transpose(2, 3)).masked_fill(~is_seen, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def mix(self, x):
        rows = torch.einsum("re,rw->erw", self.gate(x).softmax(-1), x).contiguous()
        if self.ep is None:
            return (rows @ self.experts).tanh().sum(0)
        n, own, size = self.ep.size(), len(self.experts), len(x)
        rows = all_to_all_single(torch.empty_like(rows), rows, group=self.ep)
        rows = rows.view(n, own, size, WIDTH).transpose(0, 1).reshape(own, -1, WIDTH)
        made = (rows @ self.experts).tanh().view(own, n, size, WIDTH).transpose(0, 1)
        made = made.reshape(n * own, size, WIDTH)
        return all_to_all_single(torch.empty_like(made), made, group=self.ep).sum(0)


def build():
    blocks = [Block() for _ in range(6)]
    return nn.Sequential(
        nn.Embedding(WORDS, WIDTH),
        *blocks,
        nn.LayerNorm(WIDTH),
        nn.Linear(WIDTH, WORDS),
    ).cuda()


def optimizer(parameters):  # torch's fused loop takes no mix of DTensors and others
    return torch.optim.AdamW(parameters, lr=0.01, foreach=False)


def parallelize(model, mesh):
    names = mesh.mesh_dim_names
    if "pp" in names:
        for i in range(len(model)):
            if i * mesh["pp"].size() // len(model) != mesh.get_local_rank("pp"):
                model[i] = nn.Identity()  # the names of others stay as they are
    sharded = tuple(name for name in names if name in ("cp", "dp", "ep"))
    whole = [split_block(each, mesh) for each in model if isinstance(each, Block)]
    ignored = {each for each in whole if each is not None}
    if sharded:
        for each in [each for each in model if isinstance(each, Block)] + [model]:
            fully_shard(each, mesh=mesh[sharded], ignored_params=ignored)


def split_block(block, mesh):
    """Split a block over `tp`, `cp` and `ep`; return the experts where each rank has its own."""
    names = mesh.mesh_dim_names
    if "tp" in names:
        parallelize_module(block, mesh["tp"], PLAN)
    if "cp" in names:
        block.cp = mesh.get_group("cp")
    if "ep" not in names:
        return None
    block.ep = mesh.get_group("ep")
    parts = block.experts.detach().chunk(block.ep.size())
    block.experts = nn.Parameter(parts[block.ep.rank()].clone())
    return block.experts


def batch():
    words = torch.randint(0, WORDS, (8, 9), device="cuda")
    return {"words": words[:, :-1].contiguous(), "next": words[:, 1:].contiguous()}


def mean_loss(logits, target):
    return cross_entropy(logits.flatten(0, 1), target.flatten())


def loss(model, batch):
    return mean_loss(model(batch["words"]), batch["next"])


def step(model, batch, mesh, optimizer):
    if "pp" in mesh.mesh_dim_names:
        run_pipeline(model, batch, mesh.get_group("pp"))
    else:
        loss(model, batch).backward()
    for block in (each for each in model if isinstance(each, Block) and each.ep):
        block.experts.grad /= block.ep.size()
        if block.cp is not None:
            dist.all_reduce(block.experts.grad, group=block.cp)
            block.experts.grad /= block.cp.size()
    optimizer.step()
    optimizer.zero_grad()


def run_pipeline(model, batch, group):
    words, own = batch["words"], group.rank()
    stage = PipelineStage(model, own, group.size(), words.device, group=group)
    schedule = ScheduleGPipe(stage, 4, loss_fn=mean_loss)
    schedule.step(*([words] if own == 0 else []), target=batch["next"])
