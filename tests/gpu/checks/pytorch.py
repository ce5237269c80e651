"""PyTorch on the library: collectives, messages, groups, graphs, and small training runs; one process a GPU.

usage: pytorch.py [--seconds S] [--only NAME] [--curves FILE [--curves-only] [--compare FILE [--exact]]] [--gloo]
with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (tests/gpu/check sets them). --gloo tries the program itself, without a GPU.
All ranks run the same checks in the same order; after a failure of one all end, by a file beside that of TUTTI_CHECK_ID.
"""
import argparse
import json
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from checks import nccl  # noqa: E402
from checks.report import Report, Skip, expect  # noqa: E402
from checks.torch_ends import abort, abort_of_all, again  # noqa: E402
from checks.torch_here import Here, begin, full, need_gpu, same, synchronize  # noqa: E402
from checks.torch_training import CURVES, ddp, fsdp2, tensor_parallel  # noqa: E402


# ---- what it runs on

def library():
    files = [file for file in nccl.mapped() if "libnccl" in os.path.basename(file)]
    wanted = os.path.realpath(nccl.path())
    expect(Here.gloo or wanted in [os.path.realpath(file) for file in files], f"{wanted} is not mapped: {files}")
    others = [file for file in files if os.path.realpath(file) != wanted]
    expect(not others or "TUTTI_CHECK_SWAPPED" not in os.environ, f"the file of the wheel was swapped, and another is mapped: {others}")
    if not Here.gloo:
        version = torch.cuda.nccl.version()
        also = f", and also {' '.join(others)}" if others else ""
        return f"PyTorch {torch.__version__}, version {'.'.join(map(str, version))}, mapped {wanted}{also}"
    return f"PyTorch {torch.__version__}"


# ---- collectives

def all_reduce():
    n, r = Here.size, Here.rank
    ops = [(dist.ReduceOp.SUM, n * (n + 1) / 2), (dist.ReduceOp.MAX, n), (dist.ReduceOp.MIN, 1)]
    product = 1
    for i in range(n):
        product *= i + 1
    ops.append((dist.ReduceOp.PRODUCT, product))
    types = [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8]
    if not Here.gloo:
        types += [torch.float16, torch.bfloat16, torch.int8]
    for dtype in types:
        for count in (1, 3, 1000, 100_003):
            for op, wanted in ops:
                t = full(r + 1, count, dtype)
                dist.all_reduce(t, op=op)
                same(t, full(wanted, count, dtype), f"{dtype} {op} {count}")
    if not Here.gloo:
        t = full(r + 1.0)
        dist.all_reduce(t, op=dist.ReduceOp.AVG)
        same(t, full((n + 1) / 2), "average")
        t = full(r + 1.0)
        dist.all_reduce(t, op=dist._make_nccl_premul_sum(2.0))
        same(t, full(float(n * (n + 1))), "pre-multiplied")
        flags = torch.tensor([r == 0, True, False], device=Here.device)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        expect(flags.tolist() == [True, True, False], "bools")


def large():
    need_gpu()
    for count in (1 << 20, (1 << 24) + 1, 1 << 26):
        t = torch.arange(count, device=Here.device, dtype=torch.float32) % 1024 + Here.rank
        dist.all_reduce(t)
        wanted = (torch.arange(count, device=Here.device, dtype=torch.float32) % 1024) * Here.size + Here.size * (Here.size - 1) / 2
        same(t, wanted, f"{count} floats")


def rooted():
    for root in range(Here.size):
        t = full(float(Here.rank))
        dist.broadcast(t, root)
        same(t, full(float(root)), "broadcast")
        t = full(Here.rank + 1.0)
        dist.reduce(t, root)
        if Here.rank == root:
            same(t, full(Here.size * (Here.size + 1) / 2), "reduce")
        into = [full(-1.0) for _ in range(Here.size)] if Here.rank == root else None
        dist.gather(full(float(Here.rank)), into, dst=root)
        if Here.rank == root:
            for r, t in enumerate(into):
                same(t, full(float(r)), "gather")
        out = full(-1.0)
        dist.scatter(out, [full(float(10 * root + r)) for r in range(Here.size)] if Here.rank == root else None, src=root)
        same(out, full(float(10 * root + Here.rank)), "scatter")


def gathers():
    into = [full(-1.0, 7) for _ in range(Here.size)]
    dist.all_gather(into, full(float(Here.rank), 7))
    for r, t in enumerate(into):
        same(t, full(float(r), 7), "all_gather")
    if not Here.gloo:
        uneven = [full(-1.0, r + 1) for r in range(Here.size)]
        dist.all_gather(uneven, full(float(Here.rank), Here.rank + 1))
        for r, t in enumerate(uneven):
            same(t, full(float(r), r + 1), "all_gather of unequal sizes")
    flat = full(-1.0, 7 * Here.size)
    dist.all_gather_into_tensor(flat, full(float(Here.rank), 7))
    same(flat, torch.arange(Here.size, device=Here.device, dtype=torch.float32).repeat_interleave(7), "all_gather_into_tensor")


def reduce_scatters():
    out = full(-1.0, 7)
    source = torch.arange(7 * Here.size, device=Here.device, dtype=torch.float32)
    dist.reduce_scatter_tensor(out, source + Here.rank)
    same(out, source[7 * Here.rank:7 * Here.rank + 7] * Here.size + Here.size * (Here.size - 1) / 2, "reduce_scatter_tensor")
    need_gpu("the rest is NCCL's")
    dist.reduce_scatter(out, list((source + Here.rank).chunk(Here.size)))
    same(out, source[7 * Here.rank:7 * Here.rank + 7] * Here.size + Here.size * (Here.size - 1) / 2, "reduce_scatter")
    own = full(-1.0, Here.rank + 1)
    dist.reduce_scatter(own, [full(float(100 * r + Here.rank), r + 1) for r in range(Here.size)])
    same(own, full(100 * Here.rank * Here.size + Here.size * (Here.size - 1) / 2, Here.rank + 1), "reduce_scatter of unequal sizes")


def all_to_alls():
    out = full(-1.0, Here.size)
    dist.all_to_all_single(out, torch.arange(Here.size, device=Here.device, dtype=torch.float32) + 100 * Here.rank)
    same(out, 100 * torch.arange(Here.size, device=Here.device, dtype=torch.float32) + Here.rank, "all_to_all_single")
    splits = [r + 1 for r in range(Here.size)]
    received = full(-1.0, (Here.rank + 1) * Here.size)
    dist.all_to_all_single(received, full(float(Here.rank), sum(splits)), [Here.rank + 1] * Here.size, splits)
    same(received, torch.arange(Here.size, device=Here.device, dtype=torch.float32).repeat_interleave(Here.rank + 1), "unequal splits")
    need_gpu("the rest is NCCL's")
    outs = [full(-1.0, 5) for _ in range(Here.size)]
    dist.all_to_all(outs, [full(float(10 * Here.rank + r), 5) for r in range(Here.size)])
    for r, t in enumerate(outs):
        same(t, full(float(10 * r + Here.rank), 5), "all_to_all")


# ---- messages

def messages():
    right, left = (Here.rank + 1) % Here.size, (Here.rank - 1) % Here.size
    for count in (1, 1000, 1_000_003):
        ops = [dist.P2POp(dist.isend, full(float(Here.rank), count), right), dist.P2POp(dist.irecv, full(-1.0, count), left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        same(ops[1].tensor, full(float(left), count), f"batched, {count}")
    for _ in range(3):
        t = full(float(Here.rank), 5000)
        if Here.rank == 0:
            dist.send(t, 1)
        elif Here.rank == 1:
            dist.recv(t, 0)
            same(t, full(0.0, 5000), "send and recv")
    many = [dist.P2POp(dist.isend, full(float(100 * Here.rank + i), 10 + i), right) for i in range(20)]
    many += [dist.P2POp(dist.irecv, full(-1.0, 10 + i), left) for i in range(20)]
    for work in dist.batch_isend_irecv(many):
        work.wait()
    for i in range(20):
        same(many[20 + i].tensor, full(float(100 * left + i), 10 + i), f"message {i} of 20")


def coalesced():
    need_gpu("coalescing is NCCL's")
    tensors = [full(Here.rank + float(i), 100 + i) for i in range(10)]
    with dist._coalescing_manager(device=Here.device):
        for t in tensors:
            dist.all_reduce(t)
    for i, t in enumerate(tensors):
        same(t, full(Here.size * (Here.size - 1) / 2 + i * Here.size, 100 + i), f"all_reduce {i}")
    outs = [full(-1.0, Here.size * (i + 1)) for i in range(5)]
    with dist._coalescing_manager(device=Here.device):
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, full(float(Here.rank), i + 1))
    for i, out in enumerate(outs):
        wanted = torch.arange(Here.size, device=Here.device, dtype=torch.float32).repeat_interleave(i + 1)
        same(out, wanted, f"all_gather {i}")
    outs = [full(-1.0, i + 1) for i in range(5)]
    sources = [torch.arange((i + 1) * Here.size, device=Here.device, dtype=torch.float32) for i in range(5)]
    with dist._coalescing_manager(device=Here.device):
        for out, source in zip(outs, sources):
            dist.reduce_scatter_tensor(out, source + Here.rank)
    for i, (out, source) in enumerate(zip(outs, sources)):
        same(out, source[(i + 1) * Here.rank:][:i + 1] * Here.size + Here.size * (Here.size - 1) / 2, f"reduce_scatter {i}")


def asynchronous():
    works = [dist.all_reduce(full(1.0, 10_000), async_op=True) for _ in range(50)]
    for work in works:
        work.wait()
    synchronize()


def objects():
    everything = [None] * Here.size
    dist.all_gather_object(everything, {"rank": Here.rank, "text": "x" * (1000 * (Here.rank + 1))})
    expect([o["rank"] for o in everything] == list(range(Here.size)), "all_gather_object")
    box = [{"from": 0}] if Here.rank == 0 else [None]
    dist.broadcast_object_list(box, src=0)
    expect(box == [{"from": 0}], "broadcast_object_list")
    dist.barrier()
    dist.monitored_barrier() if Here.gloo else dist.barrier(device_ids=[torch.cuda.current_device()])


def object_of(rank, number=0):
    return {"rank": rank, "text": "x" * (1000 * (rank + 1)), "number": number}


def objects_of_one():
    """To one rank, from one rank, and between two."""
    for name in ("gather_object", "scatter_object_list", "send_object_list", "recv_object_list"):
        if not hasattr(dist, name):
            raise Skip(f"this PyTorch has no {name}")
    for root in range(Here.size):
        into = [None] * Here.size if Here.rank == root else None
        dist.gather_object(object_of(Here.rank, root), into, dst=root)
        expect(into is None or into == [object_of(r, root) for r in range(Here.size)], f"gather_object to {root}: {into}")
        out = [None]
        dist.scatter_object_list(out, [object_of(r, root) for r in range(Here.size)] if Here.rank == root else None, src=root)
        expect(out == [object_of(Here.rank, root)], f"scatter_object_list from {root}: {out}")
    sent = ["text", 12, object_of(1)]
    if Here.rank == 0:
        dist.send_object_list(sent, dst=1)
    elif Here.rank == 1:
        got = [None] * len(sent)
        dist.recv_object_list(got, src=0)
        expect(got == sent, f"recv_object_list: {got}")


def groups():
    """Several process groups at once, also overlapping, used in turns without waiting."""
    whole = [dist.new_group(list(range(Here.size))) for _ in range(3)]
    singles = [dist.new_group([r]) for r in range(Here.size)]
    tensors = []
    for i in range(30):
        t = full(1.0, 1000 + i)
        dist.all_reduce(t, group=whole[i % 3])
        tensors.append((t, Here.size))
    t = full(5.0)
    dist.all_reduce(t, group=singles[Here.rank])
    tensors.append((t, 5))
    for t, wanted in tensors:
        same(t, full(float(wanted), t.numel()), "group")
    for group in whole:
        dist.destroy_process_group(group)
    dist.destroy_process_group(singles[Here.rank])


def split():
    need_gpu("split is NCCL's")
    made = dist.split_group(split_ranks=[list(range(Here.size))])
    t = full(Here.rank + 1.0)
    dist.all_reduce(t, group=made)
    same(t, full(Here.size * (Here.size + 1) / 2), "split group")
    dist.destroy_process_group(made)


# ---- graphs and registration

def side_streams():
    """Calls of several groups, each on a stream of its own, of which none waits for another."""
    need_gpu()
    counts, turns = (1000, 30_000, 131_072), 10
    made = [dist.new_group(list(range(Here.size))) for _ in counts]
    streams = [torch.cuda.Stream() for _ in counts]
    tensors = [full(Here.rank + 1, count, torch.int64) for count in counts]  # whole numbers below 2^63 with up to 32 ranks
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for _ in range(turns):
        for group, stream, t in zip(made, streams, tensors):
            with torch.cuda.stream(stream):
                dist.all_reduce(t, group=group)
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    for count, t in zip(counts, tensors):
        same(t, full(Here.size * (Here.size + 1) // 2 * Here.size ** (turns - 1), count, torch.int64), f"{count} on a side stream")
    for group in made:
        dist.destroy_process_group(group)
    return f"{len(counts) * turns} calls on {len(counts)} streams"


class Captured:
    """A graph of one call of each kind, of `elements` numbers a rank."""

    def __init__(self, elements):
        n, self.elements = Here.size, elements
        self.ranks = torch.arange(n, device=Here.device, dtype=torch.float32).repeat_interleave(elements)  # whose chunk it is
        self.source, self.spread = full(0.0, elements), full(0.0, n * elements)
        self.summed, self.gathered, self.scattered = full(0.0, elements), full(0.0, n * elements), full(0.0, elements)
        self.announced, self.exchanged = full(0.0, elements), full(0.0, n * elements)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.summed.copy_(self.source)
            dist.all_reduce(self.summed)
            dist.all_gather_into_tensor(self.gathered, self.source)
            dist.reduce_scatter_tensor(self.scattered, self.spread)
            self.announced.copy_(self.source)
            dist.broadcast(self.announced, n - 1)
            dist.all_to_all_single(self.exchanged, self.spread)

    def replay(self, factor):
        self.source.fill_(factor * (Here.rank + 1))
        self.spread.copy_(factor * (self.ranks + 10 * Here.rank))
        self.graph.replay()

    def demand(self, factor):
        n, r, elements = Here.size, Here.rank, self.elements
        what = f"of {4 * elements} bytes"
        same(self.summed, full(factor * n * (n + 1) / 2, elements), f"all_reduce {what}")
        same(self.gathered, factor * (self.ranks + 1), f"all_gather {what}")
        same(self.scattered, full(factor * (n * r + 10 * n * (n - 1) / 2), elements), f"reduce_scatter {what}")
        same(self.announced, full(factor * n, elements), f"broadcast {what}")
        same(self.exchanged, factor * (r + 10 * self.ranks), f"all_to_all {what}")


def graphs():
    need_gpu()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        dist.all_reduce(full(0.0))
    torch.cuda.current_stream().wait_stream(stream)
    count, size = 0, 4
    while size <= 16 << 20:
        captured = Captured(size // 4)
        for factor in (1.0, 3.0):
            captured.replay(factor)
            eager = full(1.0, size // 4)
            dist.all_reduce(eager)
            captured.demand(factor)
            same(eager, full(float(Here.size), size // 4), "call between replays")
        captured.graph.reset()
        size *= 4
        count += 1
    return f"{count} sizes"


def graph_of_first_call():
    need_gpu()
    group = dist.new_group(list(range(Here.size)))
    target = full(1.0, 5000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        dist.all_reduce(target, group=group)
    graph.replay()
    graph.replay()
    same(target, full(float(Here.size ** 2), 5000), "two replays")
    graph.reset()
    dist.destroy_process_group(group)


def registration():
    need_gpu()
    backend = dist.group.WORLD._get_backend(Here.device)
    if not hasattr(backend, "register_mem_pool"):
        raise Skip("this PyTorch has no register_mem_pool")
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        t = full(float(Here.rank), 1 << 20)
    backend.register_mem_pool(pool)
    dist.all_reduce(t)
    same(t, full(Here.size * (Here.size - 1) / 2, 1 << 20), "in registered memory")
    backend.deregister_mem_pool(pool)
    del t


def symmetric_registration():
    """A pool of which every segment is a symmetric window."""
    need_gpu()
    backend = dist.group.WORLD._get_backend(Here.device)
    if "symm" not in (getattr(backend, "register_mem_pool", None).__doc__ or ""):
        raise Skip("this PyTorch's register_mem_pool, if there is one, has no argument symm")
    pool = torch.cuda.MemPool(backend.mem_allocator)
    count, part = 1 << 20, (1 << 20) // Here.size
    with torch.cuda.use_mem_pool(pool):  # 4 MiB each: in one segment, so that all ranks register alike
        t, gathered = full(0.0, count), full(0.0, part * Here.size)
    try:
        backend.register_mem_pool(pool, symm=True)
    except RuntimeError as error:
        if "support" not in str(error):
            raise
        raise Skip(f"this PyTorch cannot: {str(error).splitlines()[0]}") from error
    for turn in range(1, 4):
        t.fill_(float(turn * (Here.rank + 1)))
        dist.all_reduce(t)
        same(t, full(turn * Here.size * (Here.size + 1) / 2, count), "all_reduce in symmetric windows")
        t.fill_(float(turn * (Here.rank + 1)))
        dist.all_gather_into_tensor(gathered, t[:part])
        wanted = torch.arange(1, Here.size + 1, device=Here.device, dtype=torch.float32).repeat_interleave(part) * turn
        same(gathered, wanted, "all_gather in symmetric windows")
    synchronize()
    backend.deregister_mem_pool(pool)
    del t, gathered


class Others(threading.Thread):
    """Ends this rank soon after another one has failed: what that does not come to, this one would wait for."""

    def __init__(self, report):
        super().__init__(daemon=True)
        self.report = report
        self.file = os.environ["TUTTI_CHECK_ID"] + ".failed" if "TUTTI_CHECK_ID" in os.environ else None
        self.start()

    def run(self):
        while self.file is not None and not os.path.exists(self.file):
            time.sleep(0.5)
        if self.file is not None and not self.report.failed:
            self.report.skip("rest", "another rank has failed")
            self.end()

    def tell(self):
        if self.file is not None:
            with open(self.file, "wb"):
                pass

    def end(self):
        self.report.finish()
        sys.stdout.flush()
        os._exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="")
    parser.add_argument("--curves", help="write the losses here")
    parser.add_argument("--curves-only", action="store_true")
    parser.add_argument("--compare", help="losses of another library")
    parser.add_argument("--exact", action="store_true", help="the same losses, bit by bit; the model computes deterministically")
    parser.add_argument("--gloo", action="store_true")
    options = parser.parse_args()
    Here.exact = options.exact
    Here.gloo = options.gloo
    if not Here.gloo:
        Here.device = torch.device("cuda", Here.rank % torch.cuda.device_count())
        torch.cuda.set_device(Here.device)
    report = Report(f"torch.rank{Here.rank}", options.seconds, options.only)
    print(f"     {report.title}: PyTorch {torch.__version__}, Python {sys.version.split()[0]}", flush=True)
    reference = {}
    if options.compare and os.path.exists(options.compare):
        with open(options.compare, encoding="ascii") as file:
            reference = json.load(file)
    begin()
    checks = [(name, check, ()) for name, check in (("library", library),)]
    training = [(check.__name__, check, (reference,)) for check in (ddp, fsdp2, tensor_parallel)]
    plain = (all_reduce, large, rooted, gathers, reduce_scatters, all_to_alls, messages, coalesced, asynchronous, objects, objects_of_one,
             groups, side_streams, split, graphs, graph_of_first_call, registration)
    late = (again, symmetric_registration, abort, abort_of_all)
    if options.curves_only:
        checks += training
    else:
        checks += [(check.__name__, check, ()) for check in plain] + training + [(check.__name__, check, ()) for check in late]
    others = Others(report)
    for name, check, arguments in checks:
        if not report.run(name.replace("_", "-"), check, *arguments):
            others.tell()
            others.end()  # the other ranks are in another call by now
    if options.curves and Here.rank == 0:
        with open(options.curves, "w", encoding="ascii") as file:
            json.dump(CURVES, file)
    code = report.finish()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
