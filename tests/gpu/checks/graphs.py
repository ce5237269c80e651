"""Captured collectives on GPUs: right results for all sizes, in order among other calls, and no hang, leak or error in any order of ends.

usage: graphs.py [--gpus N] [--seconds S] [--only NAME] [--most BYTES]
All ranks are of this process; with RANK, WORLD_SIZE and TUTTI_CHECK_ID (made by tests/gpu/check) it is one of several.
"""
import argparse
import os
import struct
import sys
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others
from checks import cuda, nccl  # noqa: E402
from checks.report import Report, expect  # noqa: E402

PERIOD = 251
LOST_BYTES = 2 << 20    # one unit of the driver's memory
GROWN_BYTES = 16 << 20  # of the process, in 40 replays of 1000 calls: 400 bytes a call would be seen
MODES = {"global": cuda.GLOBAL, "thread-local": cuda.THREAD_LOCAL, "relaxed": cuda.RELAXED}


def doubles(count, value):
    """`count` doubles of which number i is value(i % PERIOD), as bytes."""
    pattern = struct.pack(f"{PERIOD}d", *(value(i) for i in range(PERIOD)))
    return (pattern * (count // PERIOD + 1))[:8 * count]


class Rank:
    def __init__(self, rank, ordinal, most):
        self.rank, self.device = rank, cuda.Device(ordinal)
        self.most = most
        self.stream, self.other = self.device.stream(), self.device.stream()
        self.source, self.target = self.device.allocate(most), self.device.allocate(most)

    def close(self):
        for stream in (self.stream, self.other):
            self.device.destroy_stream(stream)
        for address in (self.source, self.target):
            self.device.free(address)


class World:
    """The ranks of this process, with what they do alike."""

    def __init__(self, options):
        self.lib = nccl.Library()
        self.alone = "TUTTI_CHECK_ID" not in os.environ
        self.size = options.gpus if self.alone else int(os.environ["WORLD_SIZE"])
        mine = range(self.size) if self.alone else [int(os.environ["RANK"])]
        self.local = [Rank(r, r % cuda.devices(), options.most) for r in mine]
        self.made = 0

    def create(self):
        if self.alone:
            return self.lib.init_all([rank.device.ordinal for rank in self.local])
        rank = self.local[0]
        rank.device.use()
        identity = next_id(rank.rank, self.made)
        self.made += 1
        return [self.lib.init_rank(self.size, identity or publish_id(self.lib, self.made - 1), rank.rank)]

    def destroy(self, comms):
        for comm in comms:
            self.lib.destroy(comm)

    def each(self, comms, act):
        """act(rank, comm) for all local ranks, in one group."""
        self.lib.group_start()
        try:
            for rank, comm in zip(self.local, comms):
                act(rank, comm)
        finally:
            code = self.lib.code("ncclGroupEnd")
        if code != nccl.SUCCESS:
            raise nccl.NcclError("ncclGroupEnd", code, self.lib.error())

    def double(self, comms, count, stream="stream"):
        """In place: every value times the number of ranks."""
        self.each(comms, lambda rank, comm: self.lib.all_reduce(rank.source, rank.source, count, nccl.FLOAT64, nccl.SUM, comm,
                                                                getattr(rank, stream)))

    def capture(self, act, mode=cuda.GLOBAL, stream="stream"):
        begun = []
        try:
            for rank in self.local:
                rank.device.begin_capture(getattr(rank, stream), mode)
                begun.append(rank)
            act()
        except Exception:
            for rank in begun:
                try:
                    rank.device.end_capture(getattr(rank, stream)).destroy()
                except cuda.CudaError:
                    pass
            raise
        return [rank.device.end_capture(getattr(rank, stream)) for rank in self.local]

    def replay(self, graphs, stream="stream"):
        for rank, graph in zip(self.local, graphs):
            graph.prepare(getattr(rank, stream))
        for rank, graph in zip(self.local, graphs):
            graph.launch(getattr(rank, stream))

    def wait(self):
        for rank in self.local:
            for stream in (rank.stream, rank.other):
                rank.device.synchronize(stream)

    def fill(self, count, factor=1.0):
        for rank in self.local:
            rank.device.write(rank.source, doubles(count, lambda i: factor * (i + 1)))

    def demand(self, count, factor, when):
        wanted = doubles(count, lambda i: factor * (i + 1))
        for rank in self.local:
            expect(rank.device.read(rank.source, 8 * count) == wanted, f"wrong values on rank {rank.rank} {when}")

    def healthy(self, comms):
        for comm in comms:
            state = self.lib.async_error(comm)
            expect(state == nccl.SUCCESS, f"the communicator's state is {state}: {self.lib.error(comm)}")


def file_of(number):
    return f"{os.environ['TUTTI_CHECK_ID']}.{number}"


def next_id(rank, number):
    """What rank 0 has published as the identity of communicator `number`; None on rank 0, which makes it."""
    if rank == 0:
        return None
    for _ in range(6000):
        if os.path.exists(file_of(number)):
            with open(file_of(number), "rb") as file:
                return file.read()
        time.sleep(0.005)
    raise TimeoutError("rank 0 has made no communicator")


def publish_id(lib, number):
    identity = lib.unique_id()
    with open(file_of(number) + ".part", "wb") as file:
        file.write(identity)
    os.rename(file_of(number) + ".part", file_of(number))
    return identity


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
    part = count // size
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


def live(world):
    """1000 captured calls, from one number to all that there is room for, replayed in between eager ones."""
    comms, calls, most = world.create(), 1000, world.local[0].most // 8
    counts = [1 + (most - 1) * number // (calls - 1) for number in range(calls)]
    for rank in world.local:
        rank.device.write(rank.source, doubles(most, lambda i, rank=rank: float((i + 1) * (rank.rank + 1))))
        rank.device.write(rank.target, bytes(8 * most))

    def call(count):
        world.each(comms, lambda rank, comm: world.lib.all_reduce(rank.source, rank.target, count, nccl.FLOAT64, nccl.MAX, comm,
                                                                  rank.stream))

    def rounds(times):
        for number in range(times):
            world.replay(graphs)
            call(counts[number % 5 * (calls // 5)])  # in the first rounds those of the others: what is loaded for a size is no loss
            world.wait()

    graphs = world.capture(lambda: [call(count) for count in counts])
    rounds(5)
    before, resident = [rank.device.free_bytes() for rank in world.local], resident_bytes()
    rounds(40)
    lost = max(b - rank.device.free_bytes() for b, rank in zip(before, world.local))
    grown = resident_bytes() - resident
    wanted = doubles(most, lambda i: float((i + 1) * world.size))
    for rank in world.local:
        expect(rank.device.read(rank.target, 8 * most) == wanted, f"wrong values on rank {rank.rank}")
    world.healthy(comms)
    for graph in graphs:
        graph.destroy()
    world.destroy(comms)
    expect(lost <= LOST_BYTES, f"{lost} bytes of a GPU are gone with replays of a graph that lives")
    expect(grown <= GROWN_BYTES, f"the process has grown by {grown} bytes with replays of a graph that lives")
    return f"{lost} bytes lost and {grown >> 10} KiB grown"


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
    for check in (mixed, several, forked, outlives, half_captured, thousand):
        run(check.__name__.replace("_", "-"), check, world)
    for name in ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "send_recv"):
        run(name.replace("_", "-"), sizes, world, name, options.most)
    run("cost", cost, world)
    for rank in world.local:
        rank.close()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
