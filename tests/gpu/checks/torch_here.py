"""Who this rank of the PyTorch script is, and what all its checks use."""
import datetime
import os

import torch
import torch.distributed as dist

from checks.report import Skip, expect


class Here:
    rank = int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])
    device = torch.device("cpu")
    gloo = False
    exact = False
    store = None
    begun = 0


def synchronize():
    if not Here.gloo:
        torch.cuda.synchronize()


def need_gpu(why="needs a GPU"):
    if Here.gloo:
        raise Skip(why)


def full(value, count=1000, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype, device=Here.device)


def same(tensor, wanted, what):
    expect(torch.equal(tensor, wanted), f"{what}: {tensor.flatten()[:4].tolist()} instead of {wanted.flatten()[:4].tolist()}")


def begin(timeout=60):
    """One store for all beginnings: ranks that are slower must not find that of the one before."""
    limit = datetime.timedelta(seconds=timeout)
    if Here.store is None:
        Here.store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), Here.size, Here.rank == 0, limit)
    Here.begun += 1
    arguments = {} if Here.gloo else {"device_id": Here.device}
    dist.init_process_group("gloo" if Here.gloo else "nccl", store=dist.PrefixStore(f"start{Here.begun}", Here.store), rank=Here.rank,
                            world_size=Here.size, timeout=limit, **arguments)
