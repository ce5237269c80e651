"""Ranks of one process, or of one process a GPU, that make the same calls: with buffers, streams, captures and communicators.

With RANK, WORLD_SIZE and TUTTI_CHECK_ID (made by tests/gpu/check) the process is one of several.
"""
import os
import struct
import time

from checks import cuda, nccl
from checks.report import expect

PERIOD = 251


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

    def double(self, comms, count, stream="stream", buffer="source"):
        """In place: every value times the number of ranks."""
        self.each(comms, lambda rank, comm: self.lib.all_reduce(getattr(rank, buffer), getattr(rank, buffer), count, nccl.FLOAT64, nccl.SUM,
                                                                comm, getattr(rank, stream)))

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

    def meet(self, comms):
        """No rank goes on before all are here, whatever is on `stream`, by a call on a communicator that is kept for this; it writes to
        their targets. Ranks of one thread are always together."""
        if self.alone:
            return
        rank = self.local[0]
        self.lib.all_reduce(rank.target, rank.target, 1, nccl.FLOAT64, nccl.MAX, comms[0], rank.other)
        rank.device.synchronize(rank.other)

    def most_of(self, comms, value):
        """The largest of what each rank gives, on all ranks; a meeting as well."""
        if self.alone:
            return value
        rank = self.local[0]
        rank.device.write(rank.target, struct.pack("d", value))
        self.meet(comms)
        return struct.unpack("d", rank.device.read(rank.target, 8))[0]

    def clean(self):
        """The GPUs, and CUDA, are as if nothing had been: an error of a kernel would come back from every call from then on."""
        for rank in self.local:
            rank.device.synchronize_all()
            probe = rank.device.allocate(1 << 20)
            rank.device.write(probe, b"whole")
            expect(rank.device.read(probe, 5) == b"whole", f"the memory of rank {rank.rank}'s GPU is not what was written")
            rank.device.free(probe)

    def fill(self, count, factor=1.0):
        for rank in self.local:
            rank.device.write(rank.source, doubles(count, lambda i: factor * (i + 1)))

    def demand(self, count, factor, when, buffer="source"):
        wanted = doubles(count, lambda i: factor * (i + 1))
        for rank in self.local:
            expect(rank.device.read(getattr(rank, buffer), 8 * count) == wanted, f"wrong values on rank {rank.rank} {when}")

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
