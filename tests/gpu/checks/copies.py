"""Calls on buffers in symmetric windows, by copy engines and by blocks that combine what lies there: right results of all collectives and
sizes, eager and in graphs, and ends in time.

usage: copies.py [--gpus N] [--seconds S] [--only NAME] [--most BYTES]
All ranks are of this process; with RANK, WORLD_SIZE and TUTTI_CHECK_ID (made by tests/gpu/check) it is one of several. The library is told
by TUTTI_COPY_ENGINES=1 and TUTTI_MAPPED=1 to go these ways wherever it can, which the number of a graph's nodes and pipes
without memory show. With NCCL_CTA_POLICY=2 instead of the former, one block moves what is little; with TUTTI_COPY_ENGINES=-1 one block or
several move whatever is not askew.
"""
import argparse
import ctypes
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others
from checks import cuda, nccl  # noqa: E402
from checks.graphs import World, doubles  # noqa: E402
from checks.report import Report, expect  # noqa: E402

NAMES = ("all_gather", "all_to_all", "broadcast", "all_reduce", "reduce_scatter")
COMBINED = ("all_reduce", "reduce_scatter")
FULL_INPUT = ("all_to_all", "reduce_scatter")  # a chunk for each rank
SYMMETRIC = 1
SIZES = (8, 24, 4096, 65_536, 100_008, 1 << 20, (4 << 20) + 8, 16 << 20)


class Windows(World):
    """Its buffers are ncclMemAlloc's, each a window."""

    def __init__(self, options):
        super().__init__(options)
        for rank in self.local:
            rank.device.use()
            for name in ("source", "target"):
                rank.device.free(getattr(rank, name))
                memory = ctypes.c_void_p()
                self.lib.call("ncclMemAlloc", ctypes.byref(memory), ctypes.c_size_t(rank.most))
                setattr(rank, name, memory.value)

    def open(self):
        comms = self.create()
        windows = []

        def register(rank, comm):
            for address in (rank.source, rank.target):
                windows.append((comm, ctypes.c_void_p()))
                self.lib.call("ncclCommWindowRegister", comm, ctypes.c_void_p(address), ctypes.c_size_t(rank.most),
                              ctypes.byref(windows[-1][1]), SYMMETRIC, comm=comm)
        self.each(comms, register)
        return comms, windows

    def shut(self, comms, windows):
        for comm, window in windows:
            self.lib.call("ncclCommWindowDeregister", comm, window, comm=comm)
        self.destroy(comms)

    def close(self):
        for rank in self.local:
            rank.device.use()
            for address in (rank.source, rank.target):
                self.lib.call("ncclMemFree", ctypes.c_void_p(address))
            for stream in (rank.stream, rank.other):
                rank.device.destroy_stream(stream)


def value(rank, peer, turn):
    return lambda i: float((i + 1) * (rank + 1) + 1000 * peer + 10_000 * turn)


class Case:
    """`count` doubles from every rank to every other one, `at` doubles into the windows."""

    def __init__(self, world, name, count, at, in_place):
        self.world, self.name, self.count, self.at, self.in_place = world, name, count, at, in_place
        self.root = (count + at) % world.size

    def source(self, rank):
        if not self.in_place:
            return rank.source
        if self.name == "reduce_scatter":
            return rank.target
        return rank.target + 8 * (self.at + (rank.rank * self.count if self.name == "all_gather" else 0))

    def output(self, rank):
        """Where the result lies: the input of a reduce-scatter in place begins at the window's start."""
        chunk = rank.rank * self.count if self.name == "reduce_scatter" and self.in_place else self.at
        return rank.target + 8 * chunk

    def fill(self, turn):
        for rank in self.world.local:
            size = self.world.size
            rank.device.write(rank.target, bytes(8 * (self.at + size * self.count) + 64))
            peers = range(size) if self.name in FULL_INPUT else (0,)
            data = b"".join(doubles(self.count, value(rank.rank, peer, turn)) for peer in peers)
            if self.name != "broadcast" or rank.rank == self.root:
                rank.device.write(self.source(rank), data)

    def call(self, rank, comm):
        lib, target = self.world.lib, self.output(rank)
        if self.name == "all_reduce":
            lib.all_reduce(self.source(rank), target, self.count, nccl.FLOAT64, nccl.SUM, comm, rank.stream)
        elif self.name == "reduce_scatter":
            lib.reduce_scatter(self.source(rank), target, self.count, nccl.FLOAT64, nccl.SUM, comm, rank.stream)
        elif self.name == "all_gather":
            lib.all_gather(self.source(rank), target, self.count, nccl.FLOAT64, comm, rank.stream)
        elif self.name == "broadcast":
            lib.broadcast(self.source(rank), target, self.count, nccl.FLOAT64, self.root, comm, rank.stream)
        else:
            lib.call("ncclAlltoAll", ctypes.c_void_p(self.source(rank)), ctypes.c_void_p(target), ctypes.c_size_t(self.count),
                     nccl.FLOAT64, comm, ctypes.c_void_p(rank.stream), comm=comm)

    def demand(self, turn, when):
        for rank in self.world.local:
            if self.name == "broadcast":
                wanted = doubles(self.count, value(self.root, 0, turn))
            elif self.name in COMBINED:
                peer = rank.rank if self.name == "reduce_scatter" else 0
                wanted = doubles(self.count, lambda i: sum(value(r, peer, turn)(i) for r in range(self.world.size)))
            else:
                peer = rank.rank if self.name == "all_to_all" else 0
                wanted = b"".join(doubles(self.count, value(r, peer, turn)) for r in range(self.world.size))
            if self.name == "reduce_scatter" and self.in_place:
                found = rank.device.read(self.output(rank), len(wanted))
                expect(found == wanted, f"{self.count} doubles in place: wrong values on rank {rank.rank} {when}")
                continue
            found = rank.device.read(rank.target, 8 * self.at + len(wanted) + 64)
            expect(found[8 * self.at:-64] == wanted, f"{self.count} doubles at {self.at}, in place {self.in_place}: wrong values on rank "
                   f"{rank.rank} {when}")
            expect(not any(found[:8 * self.at]) and not any(found[-64:]), f"rank {rank.rank} was written to outside its output {when}")


def is_little(size, at):
    """Whether blocks move it, as all ranks give so much to each other one. None: some ranks do and others do not, as more than some KiB
    that is askew is the engines'."""
    engines = os.environ.get("TUTTI_COPY_ENGINES")
    if engines == "1" or (engines != "-1" and size >= 1 << 20):
        return False
    return True if size <= 4096 or (size % 16 == 0 and at == 0) else None


def collective(world, name, most):
    comms, windows = world.open()
    tried = 0
    for size in SIZES:
        for at, in_place in ((0, False), (3, name != "all_to_all")):
            case = Case(world, name, size // 8, at, in_place)
            if 8 * (at + world.size * case.count) + 64 > most:
                continue
            world.barrier(comms)
            for turn in range(2):
                case.fill(turn)
                world.barrier(comms)  # a peer may write as soon as this rank has called
                world.each(comms, case.call)
                world.wait()
                case.demand(turn, "eagerly")
            graphs = world.capture(lambda: world.each(comms, case.call))
            least = 4 + (1 if name == "broadcast" else world.size - 1)
            if name not in COMBINED and (name != "broadcast" or any(rank.rank == case.root for rank in world.local)):
                nodes = max(graph.nodes() for graph in graphs)
                little = is_little(size, at)
                if little:
                    expect(nodes <= 3, f"{nodes} nodes in a graph of {size} bytes: expected a kernel between two events")
                elif little is False:
                    expect(nodes >= least, f"{nodes} nodes in a graph of {size} bytes: expected {least} or more on windows")
            for turn in range(2, 4):
                case.fill(turn)
                world.barrier(comms)
                world.replay(graphs)
                world.wait()
                case.demand(turn, "in a graph")
            for graph in graphs:
                graph.destroy()
            tried += 1
    world.healthy(comms)
    if name in COMBINED:
        text = ctypes.create_string_buffer(1024)
        world.lib.call("tuttiCommGetMemory", comms[0], text, ctypes.c_size_t(len(text)), None)
        expect(b'"pipes":0,' in text.value, f"large calls took pipes: {text.value.decode()}")
    world.shut(comms, windows)
    return f"{tried} cases"


def speed(world, most):
    comms, windows = world.open()
    count = most // 8 // world.size
    texts = []
    for name in NAMES:
        case = Case(world, name, count, 0, name != "all_to_all")
        for _ in range(3):
            world.each(comms, case.call)
        world.wait()
        rank = world.local[0]
        begin, end = rank.device.event(), rank.device.event()
        rank.device.use()
        rank.device.record(begin, rank.stream)
        for _ in range(10):
            world.each(comms, case.call)
        rank.device.use()
        rank.device.record(end, rank.stream)
        world.wait()
        us = rank.device.milliseconds(begin, end) * 100
        moved = 8 * count * (1 if name in ("broadcast", "all_reduce") else world.size - 1)
        texts.append(f"{name} {us:.0f} us, {moved / us / 1e3:.0f} GB/s")
    world.shut(comms, windows)
    return "; ".join(texts)


def aborted_peer(world):
    comms, _ = world.open()
    case = Case(world, "all_gather", 1 << 16, 0, True)
    begun = time.monotonic()
    for rank, comm in zip(world.local, comms):
        if rank.rank == 0:
            rank.device.use()
            case.call(rank, comm)
    time.sleep(0.3)
    for comm in comms:
        world.lib.abort(comm)
    world.wait()
    seconds = time.monotonic() - begun
    expect(seconds < 10, f"{seconds:.1f} s until an aborted call had ended")
    return f"ended after {seconds:.2f} s"


def barrier(world, comms):
    """All ranks' streams have come here."""
    world.each(comms, lambda rank, comm: world.lib.all_reduce(rank.scratch, rank.scratch, 1, nccl.INT32, nccl.SUM, comm, rank.stream))
    world.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=int, default=64 << 20, help="bytes of a buffer")
    options = parser.parse_args()
    report = Report("copies" + (f".rank{os.environ['RANK']}" if "TUTTI_CHECK_ID" in os.environ else ""), options.seconds, options.only)
    if cuda.devices() == 0:
        report.skip("all", "no GPU")
        return report.finish()
    if os.environ.get("NCCL_CTA_POLICY") != "2":
        os.environ.setdefault("TUTTI_COPY_ENGINES", "1")
    os.environ.setdefault("TUTTI_MAPPED", "1")
    world = Windows(options)
    world.barrier = lambda comms: barrier(world, comms)
    for rank in world.local:
        rank.scratch = rank.device.allocate(4096)

    def run(name, check, *arguments):
        # Ranks of several processes would not agree on what comes next after a failure of one.
        if not report.run(name, check, *arguments):
            sys.exit(report.finish())

    for name in NAMES:
        run(name.replace("_", "-"), collective, world, name, options.most)
    run("speed", speed, world, options.most)
    run("aborted-peer", aborted_peer, world)
    for rank in world.local:
        rank.device.free(rank.scratch)
    world.close()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
