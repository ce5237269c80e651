"""Random faults of ranks that are processes: each survivor must get the right error, soon, and none may hang.

usage: faults.py [--ranks N] [--count N] [--seed S] [--seconds S] [--host] [--only KIND]
One fault of each kind in turn, at a point that the seed chooses: kill (SIGKILL), stop (SIGSTOP, with a deadline), abort, skip (a call
that one rank leaves out), mismatch (a call that one rank makes with another count, type or collective), order (a message that one rank waits
for before a call that its peer has to end first). Which call the ranks repeat, the seed chooses too; on GPUs three of eight are large, for kernels over pipes, and a rank vanishes in the middle of several of them. One that
vanishes must be reported within 1 s, with its process, host and last call; an abort ends within 100 ms. Ranks that survive are used again,
and what they hold (memory of the GPU; with --host, which needs none, memory shared between processes) must be what it was before.
"""
import argparse
import collections
import ctypes
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others
from checks import cuda, nccl  # noqa: E402
from checks.report import Report, expect  # noqa: E402

KINDS = ("kill", "stop", "abort", "skip", "mismatch", "order")
DEADLINE_MS = 1500
STEPS = 12
WARM = 3  # steps before anything goes wrong
SOON_S = {"kill": 1.0, "stop": DEADLINE_MS / 1000 + 1.0, "abort": 1.0, "skip": DEADLINE_MS / 1000 + 3.0, "mismatch": 2.0, "order": 2.0}
RIGHT = {"kill": {nccl.REMOTE}, "stop": {nccl.REMOTE}, "abort": {nccl.REMOTE}, "skip": {nccl.REMOTE, nccl.INVALID_USAGE},
         "mismatch": {nccl.INVALID_USAGE}, "order": {nccl.INVALID_USAGE}}
SYMMETRIC = ("AllReduce", "AllGather", "ReduceScatter")
# A small broadcast does not need every rank, so who is late there goes unnoticed. Messages are not compared as collectives are.
CALLS = {"kill": SYMMETRIC + ("Broadcast", "Exchange"), "stop": SYMMETRIC + ("Exchange",), "abort": SYMMETRIC + ("Broadcast", "Exchange"),
         "skip": SYMMETRIC + ("Exchange",), "mismatch": SYMMETRIC, "order": SYMMETRIC}
OTHER = {"AllReduce": "ReduceScatter", "AllGather": "AllReduce", "ReduceScatter": "AllGather"}
# The large ones are 16 to 64 MiB on GPUs, where kernels over windows end and those over pipes begin (`tutti explain --gpus`). Host devices
# have what is large for them in these places, so that a seed is the same fault everywhere.
COUNTS = (1, 100, 5000, 100_000, 400_000, 2_000_003, 4 << 20, 8 << 20)
HOST_COUNTS = (1, 100, 5000, 100_000, 400_000, 200_003, 300_000, 400_000)
LARGE = 2_000_000
BURST = 16  # large calls at the step of the fault, one behind the other, so that it meets data on its way: some milliseconds of a GPU
IN_FLIGHT = ("kill", "stop", "abort")  # what such a fault is: a burst of other calls than the peers' would hide which one differs
# Of ncclCommAbort alone, on each rank. Ranks on host devices compute on cores, which they share with each other and with the tests that run
# beside this one: there an abort has to wait for its turn, and half a second tells no more than that it does not hang.
ABORT_S, HOST_ABORT_S = 0.1, 0.5
HELD_BYTES = 2 << 20  # one unit of the driver's memory
SPARE = 4096  # bytes behind the largest call: a mismatch may be of more, and the smallest messages are one number for each rank and way


class HostBuffers:
    """Host devices compute when the call is made."""

    def __init__(self, _rank, most):
        self.memory = (ctypes.c_double * (most // 8))()
        self.address, self.stream = ctypes.addressof(self.memory), None

    def use(self):
        pass

    def is_idle(self):
        return True

    def held(self):
        """Bytes of the memory that processes share."""
        with open("/proc/self/maps") as maps:
            spans = [line.split()[0].split("-") for line in maps if "/memfd:" in line]
        return sum(int(end, 16) - int(begin, 16) for begin, end in spans)


class GpuBuffers:
    def __init__(self, rank, most):
        self.device = cuda.Device(rank % cuda.devices())
        self.address, self.stream = self.device.allocate(most), self.device.stream()

    def use(self):
        self.device.use()

    def is_idle(self):
        return self.device.is_idle(self.stream)

    def held(self):
        """Less what was free at first: other processes may use the GPU, as long as they do not begin or end."""
        return -self.device.free_bytes()


def say(**what):
    print(json.dumps(what), flush=True)


class Aborting(threading.Thread):
    """Aborts the communicator after `delay`, whatever its rank does then; how long the abort took, once it has returned."""

    def __init__(self, lib, comm, delay):
        super().__init__(daemon=True)
        self.lib, self.comm, self.delay, self.seconds = lib, comm, delay, None
        self.start()

    def run(self):
        time.sleep(self.delay)
        begun = time.monotonic()
        self.lib.abort(self.comm)
        self.seconds = time.monotonic() - begun


class Worker:
    """One rank: makes a communicator for every order that it reads, sums, meets the fault, and tells what came of it."""

    def __init__(self, rank, host):
        self.lib, self.rank, self.counts = nccl.Library(), rank, HOST_COUNTS if host else COUNTS
        self.buffers = (HostBuffers if host else GpuBuffers)(rank, 8 * max(self.counts) + SPARE)
        self.level = None  # held after a communicator that has made all calls: what is loaded and kept with it is no loss

    def loop(self):
        self.buffers.use()
        say(ready=True, mapped=nccl.mapped(), pid=os.getpid())
        for line in sys.stdin:
            order = json.loads(line)
            if order.get("warm"):
                self.warm(order)
            elif "id" in order:
                self.scenario(order)
            elif order.get("publish"):
                say(id=self.lib.unique_id().hex())
            elif order.get("settle"):
                say(more=self.more(order["settle"]))

    def warm(self, order):
        """All calls of all sizes, without a fault."""
        comm = self.lib.init_rank(order["ranks"], bytes.fromhex(order["id"]), self.rank)
        for call in sorted({call for calls in CALLS.values() for call in calls}):
            for count in self.counts:
                code, begun = self.make(call, count, nccl.FLOAT64, order["ranks"], comm), time.monotonic()
                while code == nccl.SUCCESS and not self.buffers.is_idle() and time.monotonic() - begun < 20:
                    time.sleep(0.0005)
                if code != nccl.SUCCESS or not self.buffers.is_idle():
                    say(hang=f"{call} of {count} before any fault: {code} {self.lib.error(comm)}")
                    return
        self.lib.destroy(comm)
        self.level = None
        self.more(0.3)
        say(warm=True)

    def more(self, seconds):
        """What is held now beyond the level: peers let go of memory when they have aborted, and processes when they have ended."""
        end = time.monotonic() + seconds
        if self.level is None:
            time.sleep(seconds)
            self.level = self.buffers.held()
        while self.buffers.held() > self.level and time.monotonic() < end:
            time.sleep(0.01)
        return self.buffers.held() - self.level

    def make(self, call, count, dtype, ranks, comm):
        """One call on `count` numbers or fewer; its code."""
        def pointer(number):
            return ctypes.c_void_p(self.buffers.address + 8 * number)

        def size(numbers):
            return ctypes.c_size_t(numbers)

        block, stream = max(count // ranks, 1), ctypes.c_void_p(self.buffers.stream)
        if call == "AllReduce":
            return self.lib.code("ncclAllReduce", pointer(0), pointer(0), size(count), dtype, nccl.MAX, comm, stream)
        if call == "AllGather":
            return self.lib.code("ncclAllGather", pointer(self.rank * block), pointer(0), size(block), dtype, comm, stream)
        if call == "ReduceScatter":
            return self.lib.code("ncclReduceScatter", pointer(0), pointer(self.rank * block), size(block), dtype, nccl.MAX, comm, stream)
        if call == "Broadcast":
            return self.lib.code("ncclBroadcast", pointer(0), pointer(0), size(count), dtype, 0, comm, stream)
        if call == "Recv":
            return self.lib.code("ncclRecv", pointer(0), size(count), dtype, (self.rank + 1) % ranks, comm, stream)
        block = max(block // 2, 1)
        self.lib.group_start()
        for peer in range(ranks):  # an error of one is that of the group
            if peer != self.rank:
                self.lib.code("ncclSend", pointer(peer * block), size(block), dtype, peer, comm, stream)
                self.lib.code("ncclRecv", pointer((ranks + peer) * block), size(block), dtype, peer, comm, stream)
        return self.lib.code("ncclGroupEnd")

    def scenario(self, order):
        comm = self.lib.init_rank(order["ranks"], bytes.fromhex(order["id"]), self.rank)
        fault = order["kind"] if order["victim"] == self.rank else None
        code, step, text, since = nccl.SUCCESS, 0, "", None
        while code == nccl.SUCCESS and step < STEPS:
            here = fault is not None and step == order["step"]
            if step == order["step"]:
                say(at=step)
            if here and fault == "skip":
                step += 1
                continue
            if here and fault == "abort":
                aborting = Aborting(self.lib, comm, order["delay"])
            call, count, dtype = order["call"], order["count"], nccl.FLOAT64
            if here and fault == "mismatch":
                other = order["other"]
                call = OTHER[call] if other == "call" else call
                count += 2 * order["ranks"] if other == "count" else 0  # also of what one rank has of the smallest
                dtype = nccl.INT64 if other == "type" else dtype
            if here and fault == "order":
                call = "Recv"
            begun = time.monotonic()
            for _ in range(order["burst"] if step == order["step"] else 1):
                code = self.make(call, count, dtype, order["ranks"], comm)
                if code != nccl.SUCCESS:
                    break
            while code == nccl.SUCCESS:
                idle = self.buffers.is_idle()
                code = self.lib.async_error(comm) if not (here and fault == "abort") else code
                if idle:
                    break
                time.sleep(0.0005)
                if time.monotonic() - begun > 30:
                    say(hang=step)
                    return
            if here and fault in ("kill", "stop"):
                time.sleep(3600)
            if here and fault == "abort":
                break
            if step >= order["step"] and code == nccl.SUCCESS:
                code = self.lib.async_error(comm)
            step += 1
        if fault == "abort":
            aborting.join(20)
            if aborting.seconds is None:
                say(hang="in its abort")
                return
            self.say_idle(aborted=True, aborting=aborting.seconds)
            return
        while code == nccl.SUCCESS and time.monotonic() - begun < 20:  # a fault that is noticed late
            code = self.lib.async_error(comm)
            time.sleep(0.001)
        since, text = time.time(), self.lib.error(comm)
        begun = time.monotonic()
        self.lib.abort(comm)
        self.say_idle(code=code, text=text, since=since, step=step, aborting=time.monotonic() - begun)

    def say_idle(self, **what):
        """Once nothing of an aborted communicator runs any more."""
        begun = time.monotonic()
        while not self.buffers.is_idle():
            if time.monotonic() - begun > 10:
                say(hang="after the abort")
                return
        say(**what)


class Process:
    """A worker, from outside."""

    def __init__(self, rank, options):
        self.rank = rank
        environment = dict(os.environ, TUTTI_TIMEOUT_MS=str(DEADLINE_MS))
        if options.host:
            environment["TUTTI_DEVICE"] = "host"
        command = [sys.executable, os.path.abspath(__file__), "--worker", str(rank)] + (["--host"] if options.host else [])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def order(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def hear(self, seconds):
        try:
            told = self.lines.get(timeout=max(seconds, 0.01))
        except queue.Empty:
            raise TimeoutError(f"rank {self.rank} hangs: nothing for {seconds:.0f} s") from None
        expect(told is not None, f"rank {self.rank} has died, code {self.process.poll()}")
        expect("hang" not in told, f"rank {self.rank} hangs at step {told.get('hang')}")
        return told

    def end(self):
        self.process.kill()
        self.process.wait()


class Job:
    def __init__(self, options):
        self.options, self.processes = options, {}
        self.mapped = set()

    def fill(self):
        """Ranks that are gone begin anew."""
        fresh = [r for r in range(self.options.ranks) if r not in self.processes]
        for rank in fresh:
            self.processes[rank] = Process(rank, self.options)
        for rank in fresh:
            self.mapped |= set(self.processes[rank].hear(120)["mapped"])
        if not fresh:
            return
        self.processes[0].order(publish=True)
        identity = self.processes[0].hear(30)["id"]
        for process in self.processes.values():
            process.order(warm=True, id=identity, ranks=self.options.ranks)
        for process in self.processes.values():
            process.hear(120)

    def drop(self, rank):
        self.processes.pop(rank).end()

    def close(self):
        for rank in list(self.processes):
            self.drop(rank)

    def scenario(self, kind, chance):
        self.fill()
        victim, step = chance.randrange(self.options.ranks), chance.randrange(WARM, STEPS - 1)
        count = chance.choice(HOST_COUNTS if self.options.host else COUNTS)
        delay = chance.choice([0, 0.0005, 0.005, 0.05])
        call, other = chance.choice(CALLS[kind]), chance.choice(["count", "type", "call"])
        # Who survives makes the identity: it listens there as long as the communicator lives.
        first = self.processes[(victim + 1) % self.options.ranks]
        first.order(publish=True)
        burst = BURST if count >= LARGE and kind in IN_FLIGHT else 1
        order = {"id": first.hear(30)["id"], "ranks": self.options.ranks, "kind": kind, "victim": victim, "step": step, "count": count,
                 "delay": delay, "call": call, "other": other, "burst": burst}
        for process in self.processes.values():
            process.order(**order)
        told = self.processes[victim].hear(60)
        expect("at" in told, f"rank {victim} tells {told} before the fault")
        happened = time.time()
        if kind in ("kill", "stop"):
            time.sleep(delay)
            happened = time.time()
            os.kill(self.processes[victim].process.pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        pid = self.processes[victim].process.pid
        try:
            worst, slowest = self.judge(order, happened, pid)
        finally:
            if kind in ("kill", "stop"):
                self.drop(victim)
        return f"{call} of {count}{f', {burst} times' if burst > 1 else ''}", worst, slowest, self.settle(kind)

    def settle(self, kind):
        """The most that a rank holds beyond what it held after one without faults, in bytes."""
        for process in self.processes.values():
            process.order(settle=0.2 * self.options.patience)
        more = {rank: process.hear(30)["more"] for rank, process in self.processes.items()}
        rank = max(more, key=more.get)
        expect(more[rank] <= HELD_BYTES, f"{kind}: rank {rank} holds {more[rank]} bytes more than after one without faults")
        return more[rank]

    def judge(self, order, happened, pid):
        kind, victim = order["kind"], order["victim"]
        worst = slowest = 0.0
        for rank, process in self.processes.items():
            if rank == victim and kind in ("kill", "stop"):
                continue
            told = process.hear(30)
            while "at" in told:
                told = process.hear(30)
            if rank == victim and kind == "abort":
                expect(told.get("aborted"), f"rank {rank} tells {told}")
                slowest = max(slowest, told["aborting"])
                continue
            expect(told["code"] in RIGHT[kind],
                   f"{kind} of rank {victim} in {order['call']} of {order['count']}, step {order['step']}: rank {rank} got {told['code']} "
                   f"({told['text']}) at step {told['step']}, after {told['since'] - happened:.2f} s")
            expect(told["text"], f"{kind} of rank {victim}: rank {rank} got {told['code']} without a text")
            self.judge_text(order, rank, told["text"], pid, told["code"])
            worst, slowest = max(worst, told["since"] - happened), max(slowest, told["aborting"])
        expect(worst <= SOON_S[kind] * self.options.patience, f"{kind}: noticed after {worst:.2f} s")
        most = HOST_ABORT_S if self.options.host else ABORT_S
        expect(slowest <= most * self.options.patience, f"{kind}: an abort took {slowest:.3f} s")
        return worst, slowest

    @staticmethod
    def judge_text(order, rank, text, pid, code):
        """What an error must name: who it was; of a rank that vanished process, host and last call; of calls that differ both; of a rank
        that did not come the deadline and the call."""
        kind, victim, call = order["kind"], order["victim"], order["call"]
        wanted = [[f"rank {victim}"]]
        if kind == "kill":
            wanted.append([f"process {pid} on {os.uname().nodename}", f"process {pid} on this host"])
            last = "" if call == "Exchange" else call
            wanted.append([f"the last call of rank {victim} was {last}", f"the last that came from rank {victim} was of {last}"])
        if kind == "skip" and code == nccl.REMOTE:  # all calls are alike, so the one that is left out lacks at the end, on all ranks
            missing = f"#{STEPS - 1} of "
            wanted.append([f"Recv {missing}", f"Send {missing}"] if call == "Exchange" else [call + " " + missing])
            wanted.append([f"past the deadline of {DEADLINE_MS} ms, in ", "past its deadline, in "])
        elif kind == "skip":
            wanted += [["calls do not match"], ["Recv #", "Send #"] if call == "Exchange" else [f"{call} #"]]
        if kind == "order":
            wanted += [["Recv #"], [call]]
        if kind == "mismatch":
            wanted.append([call])
            wanted.append([OTHER[call] if order["other"] == "call" else call])
        for any_of in wanted:
            expect(any(words in text for words in any_of), f"{kind} in {call}: rank {rank} does not say '{any_of[0]}': {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", "--gpus", type=int, default=2)
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="", choices=("",) + KINDS)
    parser.add_argument("--host", action="store_true", help="ranks without GPUs")
    parser.add_argument("--patience", type=float, default=1.0, help="factor on all limits")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        Worker(options.worker, options.host).loop()
        return 0
    report = Report("faults", options.seconds)
    if not options.host and not cuda.are_enough(options.ranks):
        report.skip("all", f"{cuda.devices()} GPUs for {options.ranks} ranks")
        return report.finish()
    job = Job(options)
    figures = collections.defaultdict(list)
    try:
        for number in range(options.count):
            seed = options.seed + number
            kind = options.only or KINDS[number % len(KINDS)]

            def one(kind=kind, seed=seed):
                call, worst, slowest, held = job.scenario(kind, random.Random(seed))
                figures[kind].append((worst, slowest, held))
                return f"in {call}, noticed after {worst:.3f} s, abort {1000 * slowest:.0f} ms"

            if not report.run(f"{kind}-{seed}", one):
                job.close()
    finally:
        job.close()
    for kind, all_of in sorted(figures.items()):
        print(f"     {kind}: {len(all_of)} times, noticed after {max(f[0] for f in all_of):.3f} s at most, abort "
              f"{1000 * max(f[1] for f in all_of):.0f} ms at most, {max(f[2] for f in all_of) / 2**20:.1f} MiB held at most beyond what a "
              "communicator without faults leaves", flush=True)
    print(f"     mapped: {' '.join(sorted(job.mapped))}", flush=True)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
