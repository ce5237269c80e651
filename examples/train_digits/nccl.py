"""A binding of libnccl.so.2 for numpy arrays, as small as this example needs."""
import ctypes
import os
import socket

import numpy

TYPES = {numpy.dtype(numpy.float32): 7, numpy.dtype(numpy.float64): 8, numpy.dtype(numpy.int32): 2, numpy.dtype(numpy.int64): 4}
SUM, PROD, MAX, MIN, AVG = range(5)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Library:
    """`path`: a file, or a name that the loader finds. Calls release Python's lock, so that ranks may be threads."""

    def __init__(self, path="libnccl.so.2"):
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.functions = ctypes.CDLL(path)
        for name, arguments in {
            "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
            "ncclCommInitRank": [ctypes.POINTER(pointer), number, UniqueId, number],
            "ncclCommDestroy": [pointer],
            "ncclAllReduce": [pointer, pointer, size, number, number, pointer, pointer],
            "ncclBroadcast": [pointer, pointer, size, number, number, pointer, pointer],
        }.items():
            getattr(self.functions, name).argtypes = arguments
        for name in ("ncclGetErrorString", "ncclGetLastError"):
            getattr(self.functions, name).restype = ctypes.c_char_p
        self.functions.ncclGetLastError.argtypes = [pointer]

    def call(self, name, *arguments):
        result = getattr(self.functions, name)(*arguments)
        if result != 0:
            why = self.functions.ncclGetLastError(None).decode()
            raise RuntimeError(f"{name}: {self.functions.ncclGetErrorString(result).decode()}: {why}")

    def make_id(self):
        unique_id = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(unique_id))
        return unique_id


def exchange_id(library, rank):
    """The unique id that rank 0 makes, over the socket of `tutti run`. With NCCL_COMM_ID every rank makes the same one."""
    if "NCCL_COMM_ID" in os.environ or "TUTTI_RUN_FD" not in os.environ:
        return library.make_id()
    post = socket.socket(fileno=os.dup(int(os.environ["TUTTI_RUN_FD"])))
    with post:
        if rank == 0:
            unique_id = library.make_id()
            post.send(b"P" + bytes(unique_id))
            return unique_id
        post.send(b"G")
        return UniqueId.from_buffer_copy(post.recv(128))


class Communicator:
    """One rank. Arrays are contiguous; calls return when the data are there."""

    def __init__(self, library, unique_id, rank, ranks):
        self.library, self.rank, self.ranks = library, rank, ranks
        self.handle = ctypes.c_void_p()
        library.call("ncclCommInitRank", ctypes.byref(self.handle), ranks, unique_id, rank)

    def all_reduce(self, array, op=SUM):
        """In place."""
        data = self._address(array)
        self.library.call("ncclAllReduce", data, data, array.size, TYPES[array.dtype], op, self.handle, None)

    def broadcast(self, array, root=0):
        """In place."""
        data = self._address(array)
        self.library.call("ncclBroadcast", data, data, array.size, TYPES[array.dtype], root, self.handle, None)

    def destroy(self):
        self.library.call("ncclCommDestroy", self.handle)

    @staticmethod
    def _address(array):
        if not array.flags.c_contiguous:
            raise ValueError("the array must be contiguous")
        return array.ctypes.data
