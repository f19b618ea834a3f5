"""DistributedDataParallel(static_graph=True) fails where training starts in no_sync().

    python examples/findings/ddp_static_graph_no_sync.py

torch alone, one process, CPU. Exits with 0 if it shows the defect.
"""

import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(
    "gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1
)
model = DistributedDataParallel(torch.nn.Linear(1, 1), static_graph=True)
try:
    with model.no_sync():  # as documented: accumulate first, reduce later
        model(torch.ones(1, 1)).sum().backward()
except (RuntimeError, SystemError) as error:
    print("expected: no error, weight.grad == 1")
    print(f"actual:   {type(error).__name__}: {str(error).splitlines()[0]}")
    sys.exit(0)
print(f"not shown: weight.grad == {model.module.weight.grad.item()}")
sys.exit(1)
