"""Random faults of ranks that are processes: each survivor must get the right error, soon, and none may hang.

usage: faults.py [--ranks N] [--count N] [--seed S] [--seconds S] [--host] [--only KIND]
One fault of each kind in turn, at a point that the seed chooses: kill (SIGKILL), stop (SIGSTOP, with a deadline), abort, skip (a call
that one rank leaves out), mismatch (a call that one rank makes differently). Ranks that survive are used again; --host needs no GPU.
"""
import argparse
import collections
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

KINDS = ("kill", "stop", "abort", "skip", "mismatch")
DEADLINE_MS = 1500
STEPS = 12
WARM = 3  # steps before anything goes wrong
SOON_S = {"kill": 2.0, "stop": DEADLINE_MS / 1000 + 2.0, "abort": 2.0, "skip": DEADLINE_MS / 1000 + 3.0, "mismatch": 2.0}
RIGHT = {"kill": {nccl.REMOTE}, "stop": {nccl.REMOTE}, "abort": {nccl.REMOTE}, "skip": {nccl.REMOTE, nccl.INVALID_USAGE},
         "mismatch": {nccl.INVALID_USAGE}}


class HostBuffers:
    """Host devices compute when the call is made."""

    def __init__(self, _rank, most):
        import ctypes
        self.memory = (ctypes.c_double * (most // 8))()
        self.address, self.stream = ctypes.addressof(self.memory), None

    def use(self):
        pass

    def is_idle(self):
        return True

    def free_bytes(self):
        return 0


class GpuBuffers:
    def __init__(self, rank, most):
        self.device = cuda.Device(rank % cuda.devices())
        self.address, self.stream = self.device.allocate(most), self.device.stream()

    def use(self):
        self.device.use()

    def is_idle(self):
        return self.device.is_idle(self.stream)

    def free_bytes(self):
        return self.device.free_bytes()


def say(**what):
    print(json.dumps(what), flush=True)


class Worker:
    """One rank: makes a communicator for every order that it reads, sums, meets the fault, and tells what came of it."""

    MOST = 4 << 20

    def __init__(self, rank, host):
        self.lib, self.rank = nccl.Library(), rank
        self.buffers = (HostBuffers if host else GpuBuffers)(rank, self.MOST)

    def loop(self):
        self.buffers.use()
        say(ready=True, mapped=nccl.mapped(), pid=os.getpid())
        for line in sys.stdin:
            order = json.loads(line)
            if "id" in order:
                self.scenario(order)
            elif order.get("publish"):
                say(id=self.lib.unique_id().hex())

    def scenario(self, order):
        free = self.buffers.free_bytes()
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
                threading.Timer(order["delay"], lambda: self.lib.abort(comm)).start()
            count = order["count"] + (1 if here and fault == "mismatch" else 0)
            begun = time.monotonic()
            code = self.lib.all_reduce_code(self.buffers.address, self.buffers.address, count, nccl.FLOAT64, nccl.MAX, comm,
                                            self.buffers.stream)
            while code == nccl.SUCCESS:
                idle = self.buffers.is_idle()
                code = self.lib.async_error(comm) if not (here and fault == "abort") else code
                if idle:
                    break
                time.sleep(0.0005)
                if time.monotonic() - begun > 30:
                    say(hang=step)
                    return
            if here and fault in ("kill", "stop", "abort"):
                time.sleep(3600 if fault in ("kill", "stop") else order["delay"] + 0.2)
                break
            if step >= order["step"] and code == nccl.SUCCESS:
                code = self.lib.async_error(comm)
            step += 1
        if fault == "abort":
            say(aborted=True)
            return
        while code == nccl.SUCCESS and time.monotonic() - begun < 20:  # a fault that is noticed late
            code = self.lib.async_error(comm)
            time.sleep(0.001)
        since, text = time.time(), self.lib.error(comm)
        begun = time.monotonic()
        self.lib.abort(comm)
        aborting = time.monotonic() - begun
        while not self.buffers.is_idle():
            if time.monotonic() - begun > 10:
                say(hang="after the abort")
                return
        say(code=code, text=text, since=since, step=step, aborting=aborting, lost=free - self.buffers.free_bytes())


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

    def drop(self, rank):
        self.processes.pop(rank).end()

    def close(self):
        for rank in list(self.processes):
            self.drop(rank)

    def scenario(self, kind, chance):
        self.fill()
        victim, step = chance.randrange(self.options.ranks), chance.randrange(WARM, STEPS - 1)
        count = chance.choice([1, 100, 5000, 100_000, 400_000])
        delay = chance.choice([0, 0.0005, 0.005, 0.05])
        # Who survives makes the identity: it listens there as long as the communicator lives.
        first = self.processes[(victim + 1) % self.options.ranks]
        first.order(publish=True)
        order = {"id": first.hear(30)["id"], "ranks": self.options.ranks, "kind": kind, "victim": victim, "step": step, "count": count,
                 "delay": delay}
        for process in self.processes.values():
            process.order(**order)
        told = self.processes[victim].hear(60)
        expect("at" in told, f"rank {victim} tells {told} before the fault")
        happened = time.time()
        if kind in ("kill", "stop"):
            time.sleep(delay)
            happened = time.time()
            os.kill(self.processes[victim].process.pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        try:
            return self.judge(order, happened)
        finally:
            if kind in ("kill", "stop"):
                self.drop(victim)

    def judge(self, order, happened):
        kind, victim = order["kind"], order["victim"]
        worst = slowest = lost = 0.0
        for rank, process in self.processes.items():
            if rank == victim and kind in ("kill", "stop"):
                continue
            told = process.hear(30)
            while "at" in told:
                told = process.hear(30)
            if rank == victim and kind == "abort":
                expect(told.get("aborted"), f"rank {rank} tells {told}")
                continue
            expect(told["code"] in RIGHT[kind], f"{kind} of rank {victim}: rank {rank} got {told['code']} ({told['text']})")
            expect(told["text"], f"{kind} of rank {victim}: rank {rank} got {told['code']} without a text")
            if kind in ("kill", "stop", "abort"):
                expect(f"rank {victim}" in told["text"], f"{kind}: rank {rank} does not name rank {victim}: {told['text']}")
            worst, slowest = max(worst, told["since"] - happened), max(slowest, told["aborting"])
            lost = max(lost, told["lost"])
        expect(worst <= SOON_S[kind] * self.options.patience, f"{kind}: noticed after {worst:.2f} s")
        expect(slowest <= 0.5 * self.options.patience, f"{kind}: an abort took {slowest:.2f} s")
        return worst, slowest, lost


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
    if not options.host and cuda.devices() < options.ranks:
        report.skip("all", f"{cuda.devices()} GPUs for {options.ranks} ranks")
        return report.finish()
    job = Job(options)
    figures = collections.defaultdict(list)
    try:
        for number in range(options.count):
            seed = options.seed + number
            kind = options.only or KINDS[number % len(KINDS)]

            def one(kind=kind, seed=seed):
                worst, slowest, lost = job.scenario(kind, random.Random(seed))
                figures[kind].append((worst, slowest, lost))
                return f"noticed after {worst:.3f} s, abort {1000 * slowest:.0f} ms"

            if not report.run(f"{kind}-{seed}", one):
                job.close()
    finally:
        job.close()
    for kind, all_of in sorted(figures.items()):
        print(f"     {kind}: {len(all_of)} times, noticed after {max(f[0] for f in all_of):.3f} s at most, abort "
              f"{1000 * max(f[1] for f in all_of):.0f} ms at most, {max(f[2] for f in all_of) / 2**20:.1f} MiB lost at most", flush=True)
    print(f"     mapped: {' '.join(sorted(job.mapped))}", flush=True)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
