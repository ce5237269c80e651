"""PyTorch on the library: collectives, messages, groups, graphs, and small training runs; one process a GPU.

usage: pytorch.py [--seconds S] [--only NAME] [--curves FILE [--curves-only] [--compare FILE [--exact]]] [--gloo]
with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (tests/gpu/check sets them). --gloo tries the program itself, without a GPU.
All ranks run the same checks in the same order; after a failure the rank ends, and tests/gpu/check ends the others.
"""
import argparse
import datetime
import json
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from checks import nccl  # noqa: E402
from checks.report import Report, Skip, expect  # noqa: E402

STEPS = 20


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


# ---- what it runs on

def library():
    files = [file for file in nccl.mapped() if "libnccl" in os.path.basename(file)]
    wanted = os.path.realpath(nccl.path())
    expect(Here.gloo or wanted in [os.path.realpath(file) for file in files], f"{wanted} is not mapped: {files}")
    others = [file for file in files if os.path.realpath(file) != wanted]
    expect(not others or "TUTTI_CHECK_SWAPPED" not in os.environ, f"the file of the wheel was swapped, and another is mapped: {others}")
    if not Here.gloo:
        version = torch.cuda.nccl.version()
        return f"version {'.'.join(map(str, version))}, mapped {wanted}{', and also ' + ' '.join(others) if others else ''}"
    return None


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

def graphs():
    need_gpu()
    count = 0
    size = 4
    while size <= 16 << 20:
        elements = size // 4
        source, target = full(Here.rank + 1.0, elements), full(0.0, elements)
        gathered = full(0.0, elements * Here.size)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            dist.all_reduce(target.clone())
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.copy_(source)
            dist.all_reduce(target)
            dist.all_gather_into_tensor(gathered, source)
        for factor in (1.0, 3.0):
            source.fill_(factor * (Here.rank + 1))
            graph.replay()
            eager = full(1.0, elements)
            dist.all_reduce(eager)
            same(target, full(factor * Here.size * (Here.size + 1) / 2, elements), f"{size} bytes")
            wanted = (factor * torch.arange(1, Here.size + 1, device=Here.device, dtype=torch.float32)).repeat_interleave(elements)
            same(gathered, wanted, f"gather of {size} bytes")
            same(eager, full(float(Here.size), elements), "call between replays")
        graph.reset()
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


# ---- training

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Transformer(torch.nn.Module):
    def __init__(self, width=64, blocks=2, words=128):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(wrap):
    """The losses of all steps, averaged over the ranks."""
    torch.manual_seed(7)
    if not Here.gloo:
        torch.use_deterministic_algorithms(Here.exact, warn_only=True)
        torch.backends.cuda.matmul.allow_tf32 = False
    model = wrap(Transformer().to(Here.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(100 + Here.rank)
    losses = []
    for _ in range(STEPS):
        tokens = torch.randint(0, 16, (8, 33), generator=generator).cumsum(1) % 128
        tokens = tokens.to(Here.device)
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / Here.size)
    return losses


CURVES = {}


def learns(name, losses, reference):
    CURVES[name] = losses
    expect(losses[-1] < losses[0] - 0.2, f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}")
    text = f"loss {losses[0]:.4f} to {losses[-1]:.4f}"
    if name in reference:
        worst = max(abs(a - b) for a, b in zip(losses, reference[name]))
        expect(worst < 2e-3, f"up to {worst:.6f} away from the other library's curve")
        expect(not Here.exact or losses == reference[name], f"not bit by bit the other library's curve: up to {worst:.2e} away")
        text += ", bit by bit the other library's" if losses == reference[name] else f", at most {worst:.2e} from the other library's"
    return text


def ddp(reference):
    from torch.nn.parallel import DistributedDataParallel

    return learns("ddp", train(lambda model: DistributedDataParallel(model, bucket_cap_mb=0.1)), reference)


def fsdp2(reference):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu" if Here.gloo else "cuda", (Here.size,))

    def wrap(model):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    return learns("fsdp2", train(wrap), reference)


def tensor_parallel(_reference):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(3)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).to(Here.device)
    torch.manual_seed(4)
    x = torch.randn(16, 64).to(Here.device)
    alone = layers(x)
    alone.square().mean().backward()
    wanted = layers[0].bias.grad.clone()
    layers.zero_grad()
    mesh = init_device_mesh("cpu" if Here.gloo else "cuda", (Here.size,))
    parallel = parallelize_module(layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    y = parallel(x)
    y.square().mean().backward()
    expect(torch.allclose(y, alone, atol=1e-5), "another output")
    expect(torch.allclose(parallel[0].bias.grad.full_tensor(), wanted, atol=1e-5), "another gradient")


# ---- the end, and once more

def begin(timeout=60):
    """One store for all beginnings: ranks that are slower must not find that of the one before."""
    limit = datetime.timedelta(seconds=timeout)
    if Here.store is None:
        Here.store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), Here.size, Here.rank == 0, limit)
    Here.begun += 1
    arguments = {} if Here.gloo else {"device_id": Here.device}
    dist.init_process_group("gloo" if Here.gloo else "nccl", store=dist.PrefixStore(f"start{Here.begun}", Here.store), rank=Here.rank,
                            world_size=Here.size, timeout=limit, **arguments)


def again():
    for _ in range(3):
        dist.destroy_process_group()
        begin()
        t = full(1.0)
        dist.all_reduce(t)
        same(t, full(float(Here.size)), "after a new start")


def abort():
    need_gpu("abort is NCCL's")
    t = full(1.0)
    dist.all_reduce(t)
    synchronize()
    group = dist.new_group(list(range(Here.size)))
    dist.all_reduce(t, group=group)
    synchronize()
    if Here.rank != 0:  # rank 0 waits in a kernel for ranks that will not come
        time.sleep(1)
    else:
        dist.all_reduce(t, group=group, async_op=True)
        time.sleep(0.5)
    begun = time.monotonic()
    group._get_backend(Here.device).abort()
    took = time.monotonic() - begun
    synchronize()
    expect(took < 5, f"abort took {took:.2f} s")
    fresh = full(1.0)
    dist.all_reduce(fresh)
    same(fresh, full(float(Here.size)), "on another group after the abort")
    return f"abort took {1000 * took:.0f} ms"


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
    reference = {}
    if options.compare and os.path.exists(options.compare):
        with open(options.compare, encoding="ascii") as file:
            reference = json.load(file)
    begin()
    checks = [(name, check, ()) for name, check in (("library", library),)]
    training = [(check.__name__, check, (reference,)) for check in (ddp, fsdp2, tensor_parallel)]
    plain = (all_reduce, large, rooted, gathers, reduce_scatters, all_to_alls, messages, coalesced, asynchronous, objects, groups, split,
             graphs, graph_of_first_call, registration)
    if options.curves_only:
        checks += training
    else:
        checks += [(check.__name__, check, ()) for check in plain] + training + [("again", again, ()), ("abort", abort, ())]
    for name, check, arguments in checks:
        if not report.run(name.replace("_", "-"), check, *arguments):
            code = report.finish()
            sys.stdout.flush()
            os._exit(code)  # the other ranks are in another call by now
    if options.curves and Here.rank == 0:
        with open(options.curves, "w", encoding="ascii") as file:
            json.dump(CURVES, file)
    code = report.finish()
    dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main())
