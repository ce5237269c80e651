"""Captured collectives on GPUs: right results for all sizes, in order among other calls, and no hang, leak or error in any order of ends;
and calls on every kind of stream.

usage: graphs.py [--gpus N] [--seconds S] [--only NAME] [--most BYTES]
All ranks are of this process; with RANK, WORLD_SIZE and TUTTI_CHECK_ID (made by tests/gpu/check) it is one of several.
"""
import argparse
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others
from checks import cuda, graph_ends, nccl, streams  # noqa: E402
from checks.report import Report, expect  # noqa: E402
from checks.world import World, doubles  # noqa: E402

LOST_BYTES = 2 << 20    # one unit of the driver's memory
GROWN_BYTES = 16 << 20  # of the process, in 40 replays of 1000 calls: 400 bytes a call would be seen
# What the driver may take for each captured call, a kernel with parameters of 4 KiB at most, beyond what it has kept from a graph of the same
# calls before it: driver 580 took nothing on H100. The library itself takes nothing at all.
CAPTURED_GPU_BYTES, CAPTURED_HOST_BYTES = 64 << 10, 32 << 10
OWN = ("pipes", "windows", "boards", "kernels", "idle", "host")
MODES = {"global": cuda.GLOBAL, "thread-local": cuda.THREAD_LOCAL, "relaxed": cuda.RELAXED}


def first_call(world, mode):
    comms = world.create()
    world.fill(1000)
    graphs = world.capture(lambda: world.double(comms, 1000), mode)
    for times in range(1, 4):
        world.replay(graphs)
        world.wait()
        world.demand(1000, float(world.size ** times), f"after replay {times}")
    world.healthy(comms)
    nodes = graphs[0].nodes()
    for graph in graphs:
        graph.destroy()
    world.destroy(comms)
    return f"{nodes} nodes"


def collectives_of(world, comms, count):
    """By name: what is captured, and what rank r finds in its target, as (elements, value of number i)."""
    lib, size = world.lib, world.size
    part, nothing = count // size, bytes(8 * count)  # in a target that no result belongs into

    def source(rank):
        return doubles(count, lambda i: float((i + 1) * (rank + 1)))

    return {
        "all_reduce": (lambda rank, comm: lib.all_reduce(rank.source, rank.target, count, nccl.FLOAT64, nccl.SUM, comm, rank.stream),
                       lambda r: doubles(count, lambda i: float(sum((i + 1) * (s + 1) for s in range(size))))),
        "broadcast": (lambda rank, comm: lib.broadcast(rank.source, rank.target, count, nccl.FLOAT64, size - 1, comm, rank.stream),
                      lambda r: doubles(count, lambda i: float((i + 1) * size))),
        "all_gather": (lambda rank, comm: lib.all_gather(rank.source, rank.target, part, nccl.FLOAT64, comm, rank.stream),
                       lambda r: b"".join(doubles(part, lambda i, s=s: float((i + 1) * (s + 1))) for s in range(size))),
        "reduce_scatter": (lambda rank, comm: lib.reduce_scatter(rank.source, rank.target, part, nccl.FLOAT64, nccl.SUM, comm, rank.stream),
                           lambda r: doubles(count, lambda i: float(sum((i + 1) * (s + 1) for s in range(size))))[8 * part * r:
                                                                                                               8 * part * (r + 1)]),
        "send_recv": (lambda rank, comm: (lib.send(rank.source, count, nccl.FLOAT64, (rank.rank + 1) % size, comm, rank.stream),
                                          lib.recv(rank.target, count, nccl.FLOAT64, (rank.rank - 1) % size, comm, rank.stream)),
                      lambda r: doubles(count, lambda i: float((i + 1) * ((r - 1) % size + 1)))),
        "reduce": (lambda rank, comm: lib.reduce(rank.source, rank.target, count, nccl.FLOAT64, nccl.SUM, size - 1, comm, rank.stream),
                   lambda r: doubles(count, lambda i: float(sum((i + 1) * (s + 1) for s in range(size)))) if r == size - 1 else nothing),
        "alltoall": (lambda rank, comm: lib.all_to_all(rank.source, rank.target, part, nccl.FLOAT64, comm, rank.stream),
                     lambda r: b"".join(source(s)[8 * part * r:8 * part * (r + 1)] for s in range(size))),
        "gather": (lambda rank, comm: lib.gather(rank.source, rank.target, part, nccl.FLOAT64, 0, comm, rank.stream),
                   lambda r: b"".join(source(s)[:8 * part] for s in range(size)) if r == 0 else nothing),
        "scatter": (lambda rank, comm: lib.scatter(rank.source, rank.target, part, nccl.FLOAT64, size - 1, comm, rank.stream),
                    lambda r: source(size - 1)[8 * part * r:8 * part * (r + 1)]),
    }


def sizes(world, name, most):
    comms = world.create()
    tried = 0
    size = 8 * world.size
    while size <= most:
        for count in sorted({size // 8, max(size // 8 - 1, world.size)}):
            act, wanted = collectives_of(world, comms, count)[name]
            for rank in world.local:
                rank.device.write(rank.source, doubles(count, lambda i: float((i + 1) * (rank.rank + 1))))
                rank.device.write(rank.target, bytes(8 * count))
            graphs = world.capture(lambda: world.each(comms, act))
            for _ in range(2):
                world.replay(graphs)
            world.wait()
            for rank in world.local:
                right = wanted(rank.rank)
                expect(rank.device.read(rank.target, len(right)) == right, f"{count} doubles: wrong values on rank {rank.rank}")
            for graph in graphs:
                graph.destroy()
            tried += 1
        size *= 4
    world.healthy(comms)
    world.destroy(comms)
    return f"{tried} sizes to {most} bytes"


def mixed(world):
    comms = world.create()
    count = 100_000
    world.fill(count)
    one = world.capture(lambda: [world.double(comms, count) for _ in range(2)])
    two = world.capture(lambda: world.double(comms, count, "other"), stream="other")
    factor, rounds = 1, 20
    for _ in range(rounds):  # nothing is waited for, and streams alternate: the library alone keeps the order
        world.replay(one)
        world.double(comms, count, "other")
        world.replay(two, "other")
        world.double(comms, count)
        world.replay(one, "other")
        factor *= world.size ** 7
        if factor > 2 ** 900:
            break
    world.wait()
    world.demand(count, float(factor), "at the end")
    world.healthy(comms)
    for graph in one + two:
        graph.destroy()
    world.destroy(comms)


def several(world):
    first, second = world.create(), world.create()
    count = 4096
    world.fill(count)

    def both():
        world.double(first, count)
        world.double(second, count)

    one, two = world.capture(both), world.capture(both)
    for graphs in (one, two, two, one):
        world.replay(graphs)
    world.double(second, count)
    world.wait()
    world.demand(count, float(world.size ** 9), "after four graphs and a call")
    for graph in one:
        graph.destroy()
    world.replay(two)
    world.wait()
    world.demand(count, float(world.size ** 11), "when one graph is gone")
    for graph in two:
        graph.destroy()
    for comms in (second, first):
        world.healthy(comms)
        world.destroy(comms)


def forked(world):
    comms = world.create()
    count = 1000
    world.fill(count)
    events = [rank.device.event() for rank in world.local]

    def join(source, target):
        for rank, event in zip(world.local, events):
            rank.device.record(event, getattr(rank, source))
            rank.device.wait(getattr(rank, target), event)

    def act():
        join("stream", "other")
        for stream in ("stream", "other", "stream"):
            world.double(comms, count, stream)
        join("other", "stream")

    graphs = world.capture(act)
    for _ in range(5):
        world.replay(graphs)
    world.wait()
    world.demand(count, float(world.size ** 15), "after five replays of three")
    for graph in graphs:
        graph.destroy()
    for rank, event in zip(world.local, events):
        rank.device.destroy_event(event)
    world.destroy(comms)


def outlives(world):
    """The communicator goes first, without waiting; its graph can still be launched."""
    comms = world.create()
    count = 100_000
    world.fill(count)
    graphs = world.capture(lambda: world.double(comms, count))
    world.replay(graphs)
    world.wait()
    begun = time.monotonic()
    world.destroy(comms)
    took = time.monotonic() - begun
    expect(took < 2, f"destroy took {took:.2f} s")
    world.replay(graphs)
    world.wait()
    world.demand(count, float(world.size ** 2), "after the communicator has gone")
    for graph in graphs:
        graph.destroy()
    return f"destroy took {1000 * took:.1f} ms"


def half_captured(world):
    """A group with captured and other streams is refused and leaves everything as it was."""
    first, second = world.create(), world.create()
    count = 1000
    world.fill(count)
    codes = []

    def act():
        world.lib.group_start()
        for rank, a, b in zip(world.local, first, second):
            world.lib.all_reduce(rank.source, rank.source, count, nccl.FLOAT64, nccl.SUM, a, rank.stream)
            world.lib.all_reduce(rank.source, rank.source, count, nccl.FLOAT64, nccl.SUM, b, rank.stream)
            world.lib.all_reduce(rank.source, rank.source, count, nccl.FLOAT64, nccl.SUM, b, rank.other)
        codes.append(world.lib.code("ncclGroupEnd"))
        world.double(first, count)

    graphs = world.capture(act)
    expect(codes == [nccl.INVALID_USAGE], f"ncclGroupEnd returned {codes}")
    for comms in (first, second):
        world.healthy(comms)
        world.double(comms, count)
    world.replay(graphs)
    world.wait()
    world.demand(count, float(world.size ** 3), "afterwards")
    for graph in graphs:
        graph.destroy()
    world.destroy(first)
    world.destroy(second)


def thousand(world):
    """Neither graphs that come and go nor one that lives may take more of a GPU, or of the process, with every round."""
    return f"{come_and_go(world)} of 100 graphs of 10 calls, {live(world)} of one of 1000"


def come_and_go(world):
    comms = world.create()
    world.fill(1000)

    def round_of(calls):
        graphs = world.capture(lambda: [world.double(comms, 1) for _ in range(calls)])
        world.replay(graphs)
        world.wait()
        for graph in graphs:
            graph.destroy()

    round_of(10)
    before = [rank.device.free_bytes() for rank in world.local]
    for _ in range(100):
        round_of(10)
    lost = max(b - rank.device.free_bytes() for b, rank in zip(before, world.local))
    world.destroy(comms)
    expect(lost <= LOST_BYTES, f"{lost} bytes of a GPU are gone")
    return f"{lost} bytes lost"


class Taken:
    """What is taken at a moment: of the GPUs, of the process, and of the GPUs as the library tells it."""

    def __init__(self, world, comms):
        self.free = [rank.device.free_bytes() for rank in world.local]
        self.resident = resident_bytes()
        self.own = [{name: world.lib.memory(comm)[name] for name in OWN} for comm in comms]

    def gpu_since(self, before):
        return max(b - a for b, a in zip(before.free, self.free))

    def host_since(self, before):
        return self.resident - before.resident

    def own_since(self, before):
        """What has grown, by how much."""
        grown = [{name: now[name] - then[name] for name in OWN if now[name] > then[name]} for now, then in zip(self.own, before.own)]
        return [growth for growth in grown if growth]


def live(world):
    """1000 captured calls, from one number to all that there is room for, replayed in between eager ones. The same graph has been made and
    destroyed before: what is loaded and opened for a size, and what the driver keeps, is no loss."""
    comms, calls, most = world.create(), 1000, world.local[0].most // 8
    counts = [1 + (most - 1) * number // (calls - 1) for number in range(calls)]
    for rank in world.local:
        rank.device.write(rank.source, doubles(most, lambda i, rank=rank: float((i + 1) * (rank.rank + 1))))
        rank.device.write(rank.target, bytes(8 * most))

    def call(count):
        world.each(comms, lambda rank, comm: world.lib.all_reduce(rank.source, rank.target, count, nccl.FLOAT64, nccl.MAX, comm,
                                                                  rank.stream))

    def rounds(graphs, times):
        for number in range(times):
            world.replay(graphs)
            call(counts[number % 5 * (calls // 5)])  # in the first rounds those of the others
            world.wait()

    def made():
        graphs = world.capture(lambda: [call(count) for count in counts])
        rounds(graphs, 5)
        return graphs

    def gone(graphs):
        for graph in graphs:
            graph.destroy()

    gone(made())
    world.clean()
    time.sleep(0.2)  # the driver frees a graph when it comes to it
    before = Taken(world, comms)
    graphs = made()
    captured = Taken(world, comms)
    rounds(graphs, 40)
    after = Taken(world, comms)
    wanted = doubles(most, lambda i: float((i + 1) * world.size))
    for rank in world.local:
        expect(rank.device.read(rank.target, 8 * most) == wanted, f"wrong values on rank {rank.rank}")
    world.healthy(comms)
    gone(graphs)
    end = time.monotonic() + 2
    while Taken(world, comms).gpu_since(before) > LOST_BYTES and time.monotonic() < end:
        time.sleep(0.02)
    left = Taken(world, comms)
    world.destroy(comms)
    for now in (captured, after, left):
        expect(not now.own_since(before), f"the library has more of the GPUs than before the calls were captured: {now.own_since(before)}")
    on_gpu, on_host = captured.gpu_since(before), captured.host_since(before)
    expect(on_gpu <= calls * CAPTURED_GPU_BYTES + LOST_BYTES, f"{on_gpu} bytes of a GPU are gone with {calls} captured calls")
    most_on_host = calls * len(world.local) * CAPTURED_HOST_BYTES
    expect(on_host <= most_on_host, f"the process has grown by {on_host} bytes with {calls} captured calls on {len(world.local)} ranks")
    lost, grown = after.gpu_since(captured), after.host_since(captured)
    expect(lost <= LOST_BYTES, f"{lost} bytes of a GPU are gone with replays of a graph that lives")
    expect(grown <= GROWN_BYTES, f"the process has grown by {grown} bytes with replays of a graph that lives")
    expect(left.gpu_since(before) <= LOST_BYTES, f"{left.gpu_since(before)} bytes of a GPU are gone with a graph that is gone")
    return (f"{left.gpu_since(before)} bytes lost and {grown >> 10} KiB grown, while it lived {on_gpu / calls / 1024:.1f} KiB of a GPU and "
            f"{on_host / calls / len(world.local) / 1024:.1f} KiB of the process a call, nothing of the library's own,")


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cost(world):
    """What a replay takes, and what of it is the order among other calls."""
    times = {}
    for mixing in ("1", "0"):
        # Read when a communicator is made; the parsed environment is the process's, so the other value needs another process.
        if os.environ.get("NCCL_GRAPH_MIXING_SUPPORT", "1") != mixing:
            continue
        comms = world.create()
        for calls in (1, 100):
            graphs = world.capture(lambda calls=calls: [world.double(comms, 1) for _ in range(calls)])
            rank = world.local[0]
            begin, end = rank.device.event(), rank.device.event()
            for repeat in range(220):
                if repeat == 20:
                    rank.device.record(begin, rank.stream)
                world.replay(graphs)
            rank.device.record(end, rank.stream)
            world.wait()
            times[calls] = 1000 * rank.device.milliseconds(begin, end) / 200
            for graph in graphs:
                graph.destroy()
            rank.device.destroy_event(begin)
            rank.device.destroy_event(end)
        world.destroy(comms)
    return f"8 bytes: a graph of 1 call {times[1]:.2f} us, of 100 calls {times[100] / 100:.2f} us a call"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=16 << 20, help="bytes of the largest call")
    options = parser.parse_args()
    report = Report("graphs" + (f".rank{os.environ['RANK']}" if "TUTTI_CHECK_ID" in os.environ else ""), options.seconds, options.only)
    if cuda.devices() == 0:
        report.skip("all", "no GPU")
        return report.finish()
    world = World(options)

    def run(name, check, *arguments):
        # Ranks of several processes would not agree on what comes next after a failure of one.
        if not report.run(name, check, *arguments):
            sys.exit(report.finish())

    for name, mode in MODES.items():
        run(f"first-call-{name}", first_call, world, mode)
    for check in (mixed, several, graph_ends.interleaved, forked, outlives, half_captured, thousand):
        run(check.__name__.replace("_", "-"), check, world)
    for end in graph_ends.ENDS:
        run(f"ends-{end}", graph_ends.ends, world, end)
    run("ends-waiting", graph_ends.abort_of_one_that_waits, world)
    run("streams", streams.streams, world)
    for name in ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "send_recv", "reduce", "alltoall", "gather", "scatter"):
        run(name.replace("_", "-"), sizes, world, name, options.most)
    run("cost", cost, world)
    for rank in world.local:
        rank.close()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
