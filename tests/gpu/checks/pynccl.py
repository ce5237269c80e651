"""What inference servers do with libnccl.so.2 through ctypes: one process a GPU, a first all-reduce of one element, groups of messages.

usage: pynccl.py [--host] [--seconds S] [--only NAME], with RANK, WORLD_SIZE and TUTTI_CHECK_ID (made by tests/gpu/check)
"""
import argparse
import ctypes
import os
import struct
import sys
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others
from checks import cuda, nccl  # noqa: E402
from checks.graphs import file_of, next_id, publish_id  # noqa: E402
from checks.report import Report, Skip, expect  # noqa: E402


class Buffers:
    """Memory of the rank, on its GPU or of the process."""

    def __init__(self, rank, host, most=1 << 20):
        self.device = None if host else cuda.Device(rank % cuda.devices()).use()
        self.stream = None if host else self.device.stream()
        self.memory = (ctypes.c_char * most)() if host else None
        self.second = (ctypes.c_char * most)() if host else None
        self.source = ctypes.addressof(self.memory) if host else self.device.allocate(most)
        self.target = ctypes.addressof(self.second) if host else self.device.allocate(most)

    def write(self, data):
        if self.device is None:
            ctypes.memmove(self.source, data, len(data))
        else:
            self.device.write(self.source, data)

    def read(self, size):
        if self.device is None:
            return ctypes.string_at(self.target, size)
        self.device.synchronize(self.stream)
        return self.device.read(self.target, size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if options.host:
        os.environ["TUTTI_DEVICE"] = "host"
    report = Report(f"pynccl.rank{rank}", options.seconds, options.only)
    if not options.host and cuda.devices() == 0:
        report.skip("all", "no GPU")
        return report.finish()
    lib = nccl.Library()
    buffers = Buffers(rank, options.host)
    b, s = buffers, buffers.stream
    comm = lib.init_rank(size, next_id(rank, 0) or publish_id(lib, 0), rank)
    total = size * (size + 1) // 2

    def floats(*values):
        return struct.pack(f"{len(values)}f", *values)

    def version():
        expect(lib.version() >= 22703, f"version {lib.version()}")
        return str(lib.version())

    def library():
        expect(any(os.path.realpath(nccl.path()) == os.path.realpath(file) for file in nccl.mapped()), f"mapped: {nccl.mapped()}")
        return " ".join(nccl.mapped())

    def warm_up():
        b.write(floats(rank + 1.0))
        lib.all_reduce(b.source, b.target, 1, nccl.FLOAT32, nccl.SUM, comm, s)
        expect(b.read(4) == floats(float(total)), "wrong sum")

    def gather():
        b.write(floats(rank, rank + 0.5))
        lib.all_gather(b.source, b.target, 2, nccl.FLOAT32, comm, s)
        expect(b.read(8 * size) == b"".join(floats(r, r + 0.5) for r in range(size)), "wrong values")

    def scatter():
        b.write(floats(*(float(i) for i in range(size))))
        lib.reduce_scatter(b.source, b.target, 1, nccl.FLOAT32, nccl.SUM, comm, s)
        expect(b.read(4) == floats(float(rank * size)), "wrong value")

    def broadcast():
        b.write(floats(rank + 7.0))
        lib.broadcast(b.source, b.target, 1, nccl.FLOAT32, size - 1, comm, s)
        expect(b.read(4) == floats(size + 6.0), "wrong value")

    def pipeline():
        b.write(floats(rank + 1.0))
        lib.group_start()
        lib.send(b.source, 1, nccl.FLOAT32, (rank + 1) % size, comm, s)
        lib.recv(b.target, 1, nccl.FLOAT32, (rank - 1) % size, comm, s)
        lib.group_end()
        expect(b.read(4) == floats((rank - 1) % size + 1.0), "wrong value")

    def all_gatherv():
        """As broadcasts of different sizes in one group."""
        b.write(floats(*([rank + 1.0] * (rank + 1))))
        lib.group_start()
        at = 0
        for root in range(size):
            lib.broadcast(b.source, b.target + 4 * at, root + 1, nccl.FLOAT32, root, comm, s)
            at += root + 1
        lib.group_end()
        expect(b.read(4 * at) == b"".join(floats(*([r + 1.0] * (r + 1))) for r in range(size)), "wrong values")

    def captured():
        if options.host:
            raise Skip("no graphs without a GPU")
        b.write(floats(rank + 1.0))
        b.device.begin_capture(s, cuda.GLOBAL)
        lib.all_reduce(b.source, b.target, 1, nccl.FLOAT32, nccl.SUM, comm, s)
        graph = b.device.end_capture(s)
        for _ in range(100):
            graph.launch(s)
        expect(b.read(4) == floats(float(total)), "wrong sum")
        # The server keeps graphs until it ends.

    def errors():
        expect(lib.lib.ncclGetErrorString(nccl.INVALID_ARGUMENT) is not None, "no text")
        code = lib.all_reduce_code(b.source, b.target, 1, 99, nccl.SUM, comm, s)
        expect(code == nccl.INVALID_ARGUMENT, f"type 99 gives {code}")
        expect(lib.async_error(comm) == nccl.SUCCESS, "the communicator has failed")
        return lib.error(comm)

    for check in (version, library, warm_up, gather, scatter, broadcast, pipeline, all_gatherv, captured, errors):
        report.run(check.__name__.replace("_", "-"), check)
    code = report.finish()
    time.sleep(0.2)  # servers end without destroying anything
    if rank == 0 and os.path.exists(file_of(0)):
        os.remove(file_of(0))
    return code


if __name__ == "__main__":
    sys.exit(main())
