"""Lives of communicators on GPUs: many on a device, children, ends with kernels in flight, their order, ends of the process.

usage: life.py [--gpus N] [--seconds S] [--only NAME] [--host]
One thread a rank. --host leaves out what needs work in flight.
"""
import argparse
import ctypes
import os
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others
from checks import cuda, nccl  # noqa: E402
from checks.report import Report, Skip, expect  # noqa: E402

COUNT = 1000
LARGE = 6 << 20  # doubles: an all-reduce of them is one of kernels over pipes, whatever the number of GPUs (`tutti explain --gpus`)
QUEUED = 300     # large calls one behind the other: more than 50 ms of a GPU
UNDEFINED = -(1 << 31)
ABORT_S = 0.1


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int),
                ("cga_cluster_size", ctypes.c_int), ("min_ctas", ctypes.c_int), ("max_ctas", ctypes.c_int), ("net_name", ctypes.c_char_p),
                ("split_share", ctypes.c_int), ("traffic_class", ctypes.c_int), ("comm_name", ctypes.c_char_p),
                ("collnet_enable", ctypes.c_int), ("cta_policy", ctypes.c_int), ("shrink_share", ctypes.c_int), ("nvls_ctas", ctypes.c_int),
                ("channels_per_net_peer", ctypes.c_int), ("nvlink_centric", ctypes.c_int)]

    def __init__(self, **values):
        super().__init__()
        for name, kind in self._fields_:
            setattr(self, name, None if kind is ctypes.c_char_p else UNDEFINED if kind is ctypes.c_int else 0)
        self.size, self.magic, self.version = ctypes.sizeof(Config), 0xCAFEBEEF, 22809
        for name, value in values.items():
            setattr(self, name, value)


class Rank:
    """A thread's rank: a buffer of doubles, and a stream."""

    def __init__(self, world, rank):
        self.world, self.lib, self.rank, self.size = world, world.lib, rank, world.size
        self.device = None if world.host else cuda.Device(rank % cuda.devices()).use()
        self.memory = (ctypes.c_char * (8 * COUNT))() if world.host else None
        self.address = ctypes.addressof(self.memory) if world.host else self.device.allocate(8 * COUNT)
        self.stream = None if world.host else self.device.stream()

    def grow(self):
        """Room for large calls, in the place of the small buffer."""
        if self.device is None:
            raise Skip("needs work in flight")
        self.device.free(self.address)
        self.address = self.device.allocate(8 * LARGE)

    def meet(self):
        self.world.barrier.wait(60)

    def join(self, **config):
        """A communicator of all ranks."""
        self.meet()
        if self.rank == 0:
            self.world.identity = self.lib.unique_id()
        self.meet()
        unique = nccl.UniqueId()
        ctypes.memmove(ctypes.byref(unique), self.world.identity, nccl.ID_BYTES)
        comm = ctypes.c_void_p()
        self.lib.lib.ncclCommInitRankConfig.argtypes = [ctypes.c_void_p, ctypes.c_int, nccl.UniqueId, ctypes.c_int, ctypes.c_void_p]
        code = self.lib.code("ncclCommInitRankConfig", ctypes.byref(comm), self.size, unique, self.rank, ctypes.byref(Config(**config)))
        expect(code in (nccl.SUCCESS, nccl.IN_PROGRESS), f"init returned {code}: {self.lib.error(comm)}")
        self.settle(comm)
        return comm

    def settle(self, comm):
        for _ in range(60_000):
            state = self.lib.async_error(comm)
            if state != nccl.IN_PROGRESS:
                expect(state == nccl.SUCCESS, f"the state is {state}: {self.lib.error(comm)}")
                return
            time.sleep(0.001)
        raise TimeoutError("the communicator stays in progress")

    def write(self, value, count=COUNT):
        data = struct.pack("d", value) * count
        if self.device is None:
            ctypes.memmove(self.address, data, len(data))
        else:
            self.device.synchronize(self.stream)  # which does not wait for copies, nor they for it
            self.device.write(self.address, data)

    def start(self, comm, count=COUNT):
        code = self.lib.all_reduce_code(self.address, self.address, count, nccl.FLOAT64, nccl.SUM, comm, self.stream)
        expect(code in (nccl.SUCCESS, nccl.IN_PROGRESS), f"ncclAllReduce returned {code}: {self.lib.error(comm)}")

    def demand(self, value, count=COUNT, first=0):
        if self.device is not None:
            self.device.synchronize(self.stream)
        address = self.address + 8 * first
        data = ctypes.string_at(address, 8 * count) if self.device is None else self.device.read(address, 8 * count)
        if data != struct.pack("d", value) * count:
            numbers = struct.unpack(f"{count}d", data)
            wrong = next(n for n, number in enumerate(numbers) if number != value)
            raise AssertionError(f"rank {self.rank} has {numbers[wrong]} instead of {value}, at number {first + wrong}")

    def works(self, comm, size=None, count=COUNT):
        self.write(1, count)
        self.start(comm, count)
        self.settle(comm)
        self.demand(size or self.size, count)

    def divide(self, call, comm, *arguments):
        child = ctypes.c_void_p()
        self.lib.call(call, comm, *arguments[:-1], ctypes.byref(child), *arguments[-1:], comm=comm)
        return child

    def in_flight(self, comm, count=COUNT):
        """Rank 0 waits in a kernel for the others, which do not come."""
        if self.world.host:
            raise Skip("needs work in flight")
        self.works(comm, count=count)
        self.meet()
        if self.rank == 0:
            self.start(comm, count)
            time.sleep(0.2)
            expect(not self.device.is_idle(self.stream), "the kernel has not waited")
        self.meet()

    def await_error(self, comm, seconds=5):
        """The state of a communicator that fails, how long that took, and what the library says."""
        begun = time.monotonic()
        while self.lib.async_error(comm) == nccl.SUCCESS and time.monotonic() - begun < seconds:
            time.sleep(0.0005)
        return self.lib.async_error(comm), time.monotonic() - begun, self.lib.error(comm)

    def clean(self):
        """The GPU, and CUDA, are as if nothing had been: an error of a kernel would come back from every call from then on."""
        self.device.synchronize(self.stream)
        probe = self.device.allocate(1 << 20)
        self.device.write(probe, b"whole")
        expect(self.device.read(probe, 5) == b"whole", "the GPU's memory is not what was written")
        self.device.free(probe)


def many(rank):
    comms = [rank.join() for _ in range(8)]
    for turn in range(3):
        for comm in comms:
            rank.start(comm) if turn else rank.works(comm)
    for comm in comms:
        rank.works(comm)
        rank.lib.destroy(comm)


def non_blocking(rank):
    comm = rank.join(blocking=0)
    rank.works(comm)
    rank.lib.code("ncclCommFinalize", comm)
    rank.settle(comm)
    rank.lib.destroy(comm)


def children(rank):
    comm = rank.join()
    for share in (0, 1):
        config = Config(split_share=share)
        half = rank.divide("ncclCommSplit", comm, rank.rank % 2, rank.rank, ctypes.byref(config))
        rank.works(half, sum(1 for r in range(rank.size) if r % 2 == rank.rank % 2))
        rank.lib.destroy(half)
    without = (ctypes.c_int * 1)(rank.size - 1)
    if rank.rank != rank.size - 1:
        rest = ctypes.c_void_p()
        rank.lib.call("ncclCommShrink", comm, without, 1, ctypes.byref(rest), None, 0, comm=comm)
        rank.works(rest, rank.size - 1)
        rank.lib.destroy(rest)
    rank.works(comm)
    rank.lib.destroy(comm)


def abort_in_flight(rank, count=COUNT):
    comm = rank.join()
    rank.in_flight(comm, count)
    return abort_and_begin_anew(rank, comm, count)


def abort_and_begin_anew(rank, comm, count):
    begun = time.monotonic()
    rank.lib.abort(comm)
    took = time.monotonic() - begun
    rank.clean()
    expect(took < ABORT_S, f"abort took {1000 * took:.0f} ms on rank {rank.rank}")
    again = rank.join()
    rank.works(again, count=count)
    rank.lib.destroy(again)
    rank.clean()
    return f"{1000 * took:.1f} ms"


def abort_large_in_flight(rank):
    """A kernel over pipes that waits; and pipes full of data between kernels that all ranks abort in the middle of."""
    rank.grow()
    waiting = abort_in_flight(rank, LARGE)
    comm = rank.join()
    rank.works(comm, count=LARGE)
    rank.meet()
    for _ in range(QUEUED):
        rank.start(comm, LARGE)
    rank.meet()
    expect(not rank.device.is_idle(rank.stream), f"{QUEUED} calls of {8 * LARGE} bytes are over before they could be aborted")
    rank.meet()
    amid = abort_and_begin_anew(rank, comm, LARGE)
    rank.device.free(rank.address)
    return f"{waiting} where it waits, {amid} in the middle of {QUEUED} calls"


def peers_hear(rank):
    """One rank aborts; the kernel of another ends, and its state says who."""
    comm = rank.join()
    rank.in_flight(comm)
    if rank.rank == 0:
        expect(rank.await_error(comm)[0] == nccl.REMOTE, "no error")
        rank.clean()
    elif rank.rank == 1:
        rank.lib.abort(comm)
    rank.meet()
    if rank.rank != 1:
        rank.lib.abort(comm)


def revoke_in_flight(rank):
    comm = rank.join()
    rank.in_flight(comm)
    begun = time.monotonic()
    rank.lib.call("ncclCommRevoke", comm, 0, comm=comm)
    took = time.monotonic() - begun
    rank.clean()
    expect(took < ABORT_S, f"revoke took {1000 * took:.0f} ms")
    child = rank.divide("ncclCommSplit", comm, 0, rank.rank, None)
    rank.works(child)
    rank.lib.destroy(child)
    rank.lib.destroy(comm)
    return f"{1000 * took:.1f} ms"


def shrink_in_flight(rank):
    """NCCL_SHRINK_ABORT: what is under way ends, and the rest goes on."""
    comm = rank.join()
    rank.in_flight(comm)
    if rank.rank != rank.size - 1:
        without = (ctypes.c_int * 1)(rank.size - 1)
        rest = ctypes.c_void_p()
        rank.lib.call("ncclCommShrink", comm, without, 1, ctypes.byref(rest), None, 1, comm=comm)
        rank.clean()
        rank.works(rest, rank.size - 1)
        rank.lib.destroy(rest)
    rank.meet()
    rank.lib.abort(comm)


def deadline_in_flight(rank):
    """A deadline that is set while a kernel waits ends it, and the text names the call."""
    comm = rank.join()
    rank.in_flight(comm)
    took = 0
    if rank.rank == 0:
        rank.lib.call("tuttiCommSetTimeout", comm, ctypes.c_longlong(300), comm=comm)
        state, took, text = rank.await_error(comm)
        expect(state == nccl.REMOTE, f"the state is {state}: {text}")
        expect(f"in AllReduce #1 of {COUNT} double, sum: its kernel waits for" in text, f"it does not name the call: {text}")
        rank.clean()
        expect(took < 1, f"the kernel ended {took:.2f} s after the deadline was set")
    rank.meet()
    rank.lib.abort(comm)
    return f"{1000 * took:.0f} ms"


def message_sizes(rank):
    """A receive of another size than the send: both ranks are told of both, and kernels that wait end."""
    comm = rank.join()
    rank.works(comm)
    rank.meet()
    if rank.rank < 2:
        name, count = ("ncclRecv", COUNT - 1) if rank.rank else ("ncclSend", COUNT)
        code = rank.lib.code(name, ctypes.c_void_p(rank.address), ctypes.c_size_t(count), nccl.FLOAT64, 1 - rank.rank, comm,
                             ctypes.c_void_p(rank.stream))
        expect(code in (nccl.SUCCESS, nccl.INVALID_USAGE), f"{name} returned {code}: {rank.lib.error(comm)}")
        state, _, text = rank.await_error(comm)
        expect(state == nccl.INVALID_USAGE, f"the state is {state}: {text}")
        for words in (f"Send #0 of {8 * COUNT} bytes to rank 1", f"Recv #0 of {8 * COUNT - 8} bytes from rank 0"):
            expect(words in text, f"it does not say '{words}': {text}")
        if rank.device is not None:
            rank.clean()
    rank.meet()
    rank.lib.abort(comm)


def in_order(rank):
    """NCCL_LAUNCH_ORDER_IMPLICIT: two communicators of the same GPUs, on two streams. While a call of the first cannot begin, one of the
    second that came later is over only where the setting is off. Then rounds in which one and the other comes first, and both results."""
    is_implicit = os.environ["NCCL_LAUNCH_ORDER_IMPLICIT"] == "1"
    other = Rank(rank.world, rank.rank)
    pairs = ((rank, rank.join()), (other, rank.join()))
    for side, comm in pairs:
        side.grow()
        side.works(comm, count=LARGE)
        side.works(comm)
        side.write(1, LARGE)
    rank.meet()
    gate = cuda.Gate(rank.device)
    gate.close(rank.stream)
    try:
        for side, comm in pairs:
            side.start(comm)
        end = time.monotonic() + (0.3 if is_implicit else 20)
        while not other.device.is_idle(other.stream) and time.monotonic() < end:
            time.sleep(0.001)
        is_over = other.device.is_idle(other.stream)
    finally:
        gate.open()
    expect(is_over != is_implicit, f"behind one that cannot begin, a call is{'' if is_over else ' not'} over on rank {rank.rank}")
    times = 1
    while is_implicit and rank.size ** (times + 1) < 2 ** 53:  # whole numbers, exact in any order
        for side, comm in pairs if times % 2 else reversed(pairs):
            side.start(comm, LARGE)
        times += 1
    for side, comm in pairs:
        side.settle(comm)
        side.demand(rank.size ** times, COUNT)
        side.demand(rank.size ** (times - 1), LARGE - COUNT, first=COUNT)
        side.lib.destroy(comm)
        side.clean()
    return f"{2 * times} calls" if is_implicit else "the later one is over first"


class World:
    def __init__(self, options):
        self.lib, self.size, self.host = nccl.Library(), options.gpus, options.host
        self.barrier, self.identity = threading.Barrier(self.size), None

    def all(self, check):
        """The check on every rank's thread; the first failure is raised."""
        outcomes = [None] * self.size
        self.barrier.reset()

        def one(number):
            try:
                outcomes[number] = check(Rank(self, number))
            except Exception as error:  # noqa: BLE001: raised below
                outcomes[number] = error
                self.barrier.abort()

        threads = [threading.Thread(target=one, args=(r,), daemon=True) for r in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
            expect(not thread.is_alive(), "a rank hangs")
        errors = [o for o in outcomes if isinstance(o, Exception)]
        causes = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)] or errors
        if causes:
            raise causes[0]
        return outcomes[0]


def leave(options):
    """Ends with a live communicator and, on GPUs, a kernel that waits."""
    world = World(options)

    def check(rank):
        comm = rank.join()
        rank.works(comm)
        rank.meet()
        if rank.rank == 0 and not world.host:
            rank.start(comm)
            time.sleep(0.1)
        rank.meet()

    world.all(check)
    print("left", flush=True)


def exit_live(options):
    words = [sys.executable, os.path.abspath(__file__), "--leave", "--gpus", str(options.gpus)] + (["--host"] if options.host else [])
    begun = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    expect("left" in done.stdout, f"it did not get to its end: {done.stdout[-300:]} {done.stderr[-300:]}")
    expect(done.returncode == 0, f"code {done.returncode}: {done.stderr[-300:]}")
    return f"{time.monotonic() - begun:.1f} s in all"


def launch_order(options):
    """In processes of their own: the variable is read once."""
    if options.host:
        raise Skip("needs streams")
    told = []
    for value in ("1", "0"):
        # With few connections two streams may share one, and one of them would wait for the other's gate.
        environment = dict(os.environ, NCCL_LAUNCH_ORDER_IMPLICIT=value, CUDA_DEVICE_MAX_CONNECTIONS="32")
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--order", "--gpus", str(options.gpus)], env=environment,
                              capture_output=True, text=True, timeout=100, check=False)
        said = (done.stdout + done.stderr)[-400:]
        expect(done.returncode == 0 and "ordered: " in done.stdout, f"set to {value}: code {done.returncode}: {said}")
        told.append(f"set to {value}: {done.stdout.split('ordered: ')[1].splitlines()[0]}")
    return ", ".join(told)


def fork(world):
    def check(rank):
        comm = rank.join()
        rank.works(comm)
        rank.meet()
        if rank.rank == 0:
            child = os.fork()
            if child == 0:
                refused = world.lib.code("ncclGetUniqueId", ctypes.byref(nccl.UniqueId())) == nccl.INVALID_USAGE
                os._exit(0 if refused and "forked" in world.lib.error() else 1)
            expect(os.waitpid(child, 0)[1] == 0, "the child was not refused")
        rank.meet()
        rank.works(comm)
        rank.lib.destroy(comm)

    return world.all(check)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--leave", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--order", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        os.environ["TUTTI_DEVICE"] = "host"
    if options.leave:
        leave(options)
        return 0
    if options.order:
        print(f"ordered: {World(options).all(in_order)}", flush=True)
        return 0
    report = Report("life", options.seconds, options.only)
    if not options.host and cuda.devices() == 0:
        report.skip("all", "no GPU")
        return report.finish()
    world = World(options)
    for check in (many, non_blocking, children, abort_in_flight, abort_large_in_flight, peers_hear, revoke_in_flight, shrink_in_flight,
                  deadline_in_flight, message_sizes):
        if not report.run(check.__name__.replace("_", "-"), world.all, check):
            world = World(options)  # threads of the old one may still be at its barrier
    report.run("launch-order", launch_order, options)
    report.run("exit-live", exit_live, options)
    report.run("fork", fork, world)
    code = report.finish()
    sys.stdout.flush()
    os._exit(code)  # a rank that hangs is no reason not to end


if __name__ == "__main__":
    main()
