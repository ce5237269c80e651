"""Ends of process groups of the PyTorch script, and what begins after them."""
import datetime
import time

import torch.distributed as dist

from checks.report import Skip, expect
from checks.torch_here import Here, begin, full, need_gpu, same, synchronize

ABORT_S = 1.0


def again():
    for _ in range(3):
        dist.destroy_process_group()
        begin()
        t = full(1.0)
        dist.all_reduce(t)
        same(t, full(float(Here.size)), "after a new start")


def launch_alone(group):
    """Rank 0 waits in a kernel for ranks that will not come."""
    t = full(1.0)
    dist.all_reduce(t, group=group)
    synchronize()
    if Here.rank != 0:
        return None
    work = dist.all_reduce(t, group=group, async_op=True)
    time.sleep(0.5)
    expect(not work.is_completed(), "the kernel has not waited")
    return work


def abort_by(name, call):
    """Rank 0 comes first: whoever waits and hears of another rank's abort may be ended by its own watchdog. How long the call took."""
    if Here.rank != 0:
        Here.store.wait([name], datetime.timedelta(seconds=30))
    begun = time.monotonic()
    call()
    took = time.monotonic() - begun
    if Here.rank == 0:
        Here.store.set(name, "done")
    synchronize()
    expect(took < ABORT_S, f"abort took {took:.2f} s")
    return f"abort took {1000 * took:.0f} ms"


def abort():
    need_gpu("abort is NCCL's")
    dist.all_reduce(full(1.0))
    group = dist.new_group(list(range(Here.size)))
    work = launch_alone(group)
    took = abort_by("abort of a group", group._get_backend(Here.device).abort)
    del work
    fresh = full(1.0)
    dist.all_reduce(fresh)
    same(fresh, full(float(Here.size)), "on another group after the abort")
    return took


def abort_of_all():
    """Of the default group, and so of all that there are, while a kernel waits; then everything anew."""
    need_gpu("abort is NCCL's")
    from torch.distributed import distributed_c10d

    if not hasattr(distributed_c10d, "_abort_process_group"):
        raise Skip("this PyTorch has no _abort_process_group")
    dist.destroy_process_group()
    begin()
    group = dist.new_group(list(range(Here.size)))
    dist.all_reduce(full(1.0), group=group)
    work = launch_alone(None)
    took = abort_by("abort of all", distributed_c10d._abort_process_group)
    del work, group
    expect(not dist.is_initialized(), "the default group is still there")
    begin()
    for group in (None, dist.new_group(list(range(Here.size)))):
        for count in (1000, 1 << 20):
            t = full(Here.rank + 1.0, count)
            dist.all_reduce(t, group=group)
            same(t, full(Here.size * (Here.size + 1) / 2, count), "after everything was aborted")
    return took
