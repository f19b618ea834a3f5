"""torch keeps a process group until it is destroyed: the count of groups relies on that."""

import torch.distributed as dist

from syncverify.program.process_groups import num_groups


def test_groups_are_counted_until_they_are_destroyed() -> None:
    before = num_groups()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        one, _ = dist.new_group([0]), dist.new_group([0])
        assert num_groups() == before + 3
        dist.destroy_process_group(one)
        assert num_groups() == before + 2
    finally:
        dist.destroy_process_group()
    assert num_groups() == before
