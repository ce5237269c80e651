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
from checks.report import Report, Skip, expect  # noqa: E402
from checks.world import file_of, next_id, publish_id  # noqa: E402


SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC
_comm = _buffer = _stream = _window = ctypes.c_void_p
_result = _type = _op = ctypes.c_int
_P = ctypes.POINTER
# Every function that the binding of vLLM declares (vllm/distributed/device_communicators/pynccl_wrapper.py), as it declares them.
DECLARED = {
    "ncclGetErrorString": [_result],
    "ncclGetVersion": [_P(ctypes.c_int)],
    "ncclGetUniqueId": [_P(nccl.UniqueId)],
    "ncclCommInitRank": [_P(_comm), ctypes.c_int, nccl.UniqueId, ctypes.c_int],
    "ncclAllReduce": [_buffer, _buffer, ctypes.c_size_t, _type, _op, _comm, _stream],
    "ncclReduce": [_buffer, _buffer, ctypes.c_size_t, _type, _op, ctypes.c_int, _comm, _stream],
    "ncclAllGather": [_buffer, _buffer, ctypes.c_size_t, _type, _comm, _stream],
    "ncclReduceScatter": [_buffer, _buffer, ctypes.c_size_t, _type, _op, _comm, _stream],
    "ncclSend": [_buffer, ctypes.c_size_t, _type, ctypes.c_int, _comm, _stream],
    "ncclRecv": [_buffer, ctypes.c_size_t, _type, ctypes.c_int, _comm, _stream],
    "ncclBroadcast": [_buffer, _buffer, ctypes.c_size_t, _type, ctypes.c_int, _comm, _stream],
    "ncclCommDestroy": [_comm],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommWindowRegister": [_comm, _buffer, ctypes.c_size_t, _P(_window), ctypes.c_int],
    "ncclCommWindowDeregister": [_comm, _window],
}


class Binding:
    """The library with declared arguments: ctypes converts, and refuses what does not fit. Knows which functions were called."""

    def __init__(self):
        self.lib, self.called = ctypes.CDLL(nccl.path()), set()
        for name, arguments in DECLARED.items():
            function = getattr(self.lib, name)
            function.argtypes, function.restype = arguments, ctypes.c_char_p if name == "ncclGetErrorString" else _result

    def code(self, name, *arguments):
        self.called.add(name)
        return getattr(self.lib, name)(*arguments)

    def call(self, name, *arguments):
        code = self.code(name, *arguments)
        expect(code == nccl.SUCCESS, f"{name} returned {code}: {self.code('ncclGetErrorString', code)}")

    def unique_id(self):
        unique = nccl.UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(unique))
        return ctypes.string_at(ctypes.byref(unique), nccl.ID_BYTES)


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

    def declared():
        """All that the binding declares, each once or more, on a communicator of its own."""
        bound = Binding()
        number = ctypes.c_int()
        bound.call("ncclGetVersion", ctypes.byref(number))
        expect(number.value == lib.version(), f"version {number.value}")
        text = bound.code("ncclGetErrorString", nccl.INVALID_ARGUMENT)
        expect(text.startswith(b"invalid argument"), f"the text of an invalid argument is {text}")
        unique, own = nccl.UniqueId(), ctypes.c_void_p()
        ctypes.memmove(ctypes.byref(unique), next_id(rank, 1) or publish_id(bound, 1), nccl.ID_BYTES)
        if rank:
            bound.unique_id()  # as well, of nobody's communicator
        bound.call("ncclCommInitRank", ctypes.byref(own), size, unique, rank)

        def gives(name, wanted, *arguments):
            bound.call(name, b.source, b.target, *arguments, own, s)
            got = b.read(max(len(wanted), 4))[:len(wanted)]  # also where there is no result: the call has ended
            expect(got == wanted, f"{name}: {struct.unpack(f'{len(got) // 4}f', got)}")

        b.write(floats(*(float(10 * rank + i) for i in range(size))))
        sums = [float(size * i + 10 * (total - size)) for i in range(size)]
        gives("ncclAllReduce", floats(*sums), size, nccl.FLOAT32, nccl.SUM)
        gives("ncclReduce", floats(*(sums if rank == size - 1 else [])), size, nccl.FLOAT32, nccl.SUM, size - 1)
        gives("ncclAllGather", floats(*(float(10 * r) for r in range(size))), 1, nccl.FLOAT32)
        gives("ncclReduceScatter", floats(sums[rank]), 1, nccl.FLOAT32, nccl.SUM)
        gives("ncclBroadcast", floats(10.0, 11.0), 2, nccl.FLOAT32, 1)
        bound.call("ncclGroupStart")
        bound.call("ncclSend", b.source, 1, nccl.FLOAT32, (rank + 1) % size, own, s)
        bound.call("ncclRecv", b.target, 1, nccl.FLOAT32, (rank - 1) % size, own, s)
        bound.call("ncclGroupEnd")
        expect(b.read(4) == floats(10.0 * ((rank - 1) % size)), "ncclRecv: wrong value")
        on_windows = windows(bound, own)
        bound.call("ncclCommDestroy", own)
        expect(bound.called == set(DECLARED), f"not called: {set(DECLARED) - bound.called}")
        return f"{len(DECLARED)} functions, {on_windows}"

    def windows(bound, own):
        """A sum in memory that all ranks have registered; without GPUs windows are refused, and nothing else changes."""
        memory, window, room = ctypes.c_void_p(), ctypes.c_void_p(), 2 << 20
        if not options.host:
            b.device.use()
        lib.call("ncclMemAlloc", ctypes.byref(memory), ctypes.c_size_t(room))
        code = bound.code("ncclCommWindowRegister", own, memory, room, ctypes.byref(window), SYMMETRIC)
        if options.host:
            expect(code == nccl.INVALID_USAGE and "symmetric window" in lib.error(own), f"without GPUs {code}: {lib.error(own)}")
            bound.call("ncclCommWindowDeregister", own, None)
        else:
            expect(code == nccl.SUCCESS, f"ncclCommWindowRegister returned {code}: {lib.error(own)}")
            expect(window.value, "ncclCommWindowRegister gives no window")
            b.device.write(memory.value, floats(*[rank + 1.0] * 1000))
            bound.call("ncclAllReduce", memory, memory, 1000, nccl.FLOAT32, nccl.SUM, own, s)
            b.device.synchronize(s)
            expect(b.device.read(memory.value, 4000) == floats(*[float(total)] * 1000), "a wrong sum in a window")
            bound.call("ncclCommWindowDeregister", own, window)
        lib.call("ncclMemFree", memory)
        return "windows refused" if options.host else "a sum in a window"

    for check in (version, library, warm_up, gather, scatter, broadcast, pipeline, all_gatherv, captured, declared, errors):
        report.run(check.__name__.replace("_", "-"), check)
    code = report.finish()
    time.sleep(0.2)  # servers end without destroying anything
    if rank == 0:
        for number in range(2):
            if os.path.exists(file_of(number)):
                os.remove(file_of(number))
    return code


if __name__ == "__main__":
    sys.exit(main())
