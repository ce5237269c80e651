"""libnccl.so.2 through ctypes, as frameworks without a binding of their own use it."""
import ctypes
import json
import os

SUCCESS, UNHANDLED_CUDA, SYSTEM, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE, REMOTE, IN_PROGRESS = range(8)
INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = range(10)
SUM, PROD, MAX, MIN, AVG = range(5)
ID_BYTES = 128


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * ID_BYTES)]


class NcclError(RuntimeError):
    def __init__(self, call, code, text):
        super().__init__(f"{call} returned {code}: {text}")
        self.code, self.text = code, text


def path():
    return os.environ.get("TUTTI_CHECK_LIBRARY", "libnccl.so.2")


def mapped():
    """Which files named libnccl this process has mapped."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libnccl" in line})


class Library:
    """Every call raises NcclError where it does not succeed, but those whose name ends in _code."""

    def __init__(self, file=None):
        self.lib = ctypes.CDLL(file or path())
        self.lib.ncclGetErrorString.restype = self.lib.ncclGetLastError.restype = ctypes.c_char_p
        self.lib.ncclGetLastError.argtypes = [ctypes.c_void_p]
        self.lib.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]

    def code(self, name, *arguments):
        return getattr(self.lib, name)(*arguments)

    def error(self, comm=None):
        return (self.lib.ncclGetLastError(comm) or b"").decode(errors="replace")

    def call(self, name, *arguments, comm=None):
        code = self.code(name, *arguments)
        if code != SUCCESS:
            raise NcclError(name, code, self.error(comm))

    def version(self):
        version = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        return version.value

    def unique_id(self):
        unique = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(unique))
        return ctypes.string_at(ctypes.byref(unique), ID_BYTES)

    def init_all(self, devices):
        comms = (ctypes.c_void_p * len(devices))()
        self.call("ncclCommInitAll", comms, len(devices), (ctypes.c_int * len(devices))(*devices))
        return [ctypes.c_void_p(comm) for comm in comms]

    def init_rank(self, ranks, unique, rank):
        identity = UniqueId()
        ctypes.memmove(ctypes.byref(identity), unique, ID_BYTES)
        comm = ctypes.c_void_p()
        self.call("ncclCommInitRank", ctypes.byref(comm), ranks, identity, rank)
        return comm

    def destroy(self, comm):
        self.call("ncclCommDestroy", comm)

    def abort(self, comm):
        self.call("ncclCommAbort", comm)

    def async_error(self, comm):
        state = ctypes.c_int()
        self.call("ncclCommGetAsyncError", comm, ctypes.byref(state))
        return state.value

    def memory(self, comm):
        """What the library has on the communicator's GPU, in bytes by purpose, as include/tutti.h says."""
        text = ctypes.create_string_buffer(1024)
        self.call("tuttiCommGetMemory", comm, text, ctypes.c_size_t(len(text)), None, comm=comm)
        return json.loads(text.value)

    def group_start(self):
        self.call("ncclGroupStart")

    def group_end(self):
        self.call("ncclGroupEnd")

    def all_reduce_code(self, source, target, count, dtype, op, comm, stream):
        return self.code("ncclAllReduce", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, op, comm,
                         ctypes.c_void_p(stream))

    def all_reduce(self, source, target, count, dtype, op, comm, stream):
        code = self.all_reduce_code(source, target, count, dtype, op, comm, stream)
        if code != SUCCESS:
            raise NcclError("ncclAllReduce", code, self.error(comm))

    def all_gather(self, source, target, count, dtype, comm, stream):
        self.call("ncclAllGather", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, comm,
                  ctypes.c_void_p(stream), comm=comm)

    def reduce_scatter(self, source, target, count, dtype, op, comm, stream):
        self.call("ncclReduceScatter", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, op, comm,
                  ctypes.c_void_p(stream), comm=comm)

    def broadcast(self, source, target, count, dtype, root, comm, stream):
        self.call("ncclBroadcast", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, root, comm,
                  ctypes.c_void_p(stream), comm=comm)

    def reduce(self, source, target, count, dtype, op, root, comm, stream):
        self.call("ncclReduce", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, op, root, comm,
                  ctypes.c_void_p(stream), comm=comm)

    def all_to_all(self, source, target, count, dtype, comm, stream):
        self.call("ncclAlltoAll", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, comm,
                  ctypes.c_void_p(stream), comm=comm)

    def gather(self, source, target, count, dtype, root, comm, stream):
        self.call("ncclGather", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, root, comm,
                  ctypes.c_void_p(stream), comm=comm)

    def scatter(self, source, target, count, dtype, root, comm, stream):
        self.call("ncclScatter", ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, root, comm,
                  ctypes.c_void_p(stream), comm=comm)

    def send(self, source, count, dtype, peer, comm, stream):
        self.call("ncclSend", ctypes.c_void_p(source), ctypes.c_size_t(count), dtype, peer, comm, ctypes.c_void_p(stream), comm=comm)

    def recv(self, target, count, dtype, peer, comm, stream):
        self.call("ncclRecv", ctypes.c_void_p(target), ctypes.c_size_t(count), dtype, peer, comm, ctypes.c_void_p(stream), comm=comm)
