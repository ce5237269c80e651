"""Which checks there are: the gate, the full set, and the timings beside a reference. What a check expects to see is part of it."""
import dataclasses
import itertools

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30

TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2")
HOPPER_TYPES = ("f8e4m3", "f8e5m2")  # nccl-tests leaves them out before compute capability 9.0
OPS = ("sum", "prod", "max", "min", "avg", "mulsum")

PROGRAMS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "reduce", "alltoall", "alltoallv", "scatter", "gather", "sendrecv",
            "hypercube")
WITH_OPS = ("all_reduce", "reduce_scatter", "reduce")
WITH_ROOTS = ("broadcast", "reduce", "scatter", "gather")
UNCHECKED_IN_PLACE = ("alltoall", "alltoallv", "sendrecv")  # nccl-tests prints N/A there
IN_WINDOWS = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "alltoall")  # what goes other ways in symmetric windows
HOST_MEMORY = ("all_reduce", "all_gather", "broadcast", "reduce_scatter", "alltoall", "sendrecv")
TIMED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")

# What TUTTI_ALGO may name for which program; tests/gpu/run_test.py compares it, and what no GPU runs, with `tutti prove --list`.
ALGORITHMS = {
    "all_reduce": ("ring", "tree", "chain", "oneshot", "twoshot", "hierarchical"),
    "reduce_scatter": ("ring", "direct", "pat", "hierarchical"),
    "all_gather": ("ring", "direct", "pat", "hierarchical"),
    "broadcast": ("ring", "chain", "direct"),
    "reduce": ("ring", "chain", "direct"),
    "alltoall": ("direct", "p2p"),
    "gather": ("star", "direct"),
    "scatter": ("star", "direct"),
    "sendrecv": ("p2p",),
}
NOT_ON_GPUS = {"all_reduce": ("allpairs",), "broadcast": ("star",)}
# Of tests/gpu/check: how many, where that is a choice, and about how long they take.
APPLICATIONS = (("graphs", (), 15), ("copies", (), 60), ("life", (), 20), ("faults", ("--count", "36"), 45), ("torture", ("--count", "2"), 60),
                ("tools", (), 5), ("pynccl", (), 10), ("torch", (), 40), ("cupy", (), 10), ("jax", (), 40))
PROTOCOLS = ("LL", "LL128", "Simple")
NCCL_ALGORITHMS = ("Ring", "Tree")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """As -b, -e, and -f or -i."""
    first: int
    last: int
    factor: int = 2
    step: int = 0

    def count(self):
        n, size = 0, self.first
        while size <= self.last:
            n, size = n + 1, size + self.step if self.step else size * self.factor
        return n

    def arguments(self):
        return ["-b", str(self.first), "-e", str(self.last), *(["-i", str(self.step)] if self.step else ["-f", str(self.factor)])]

    def __str__(self):
        return f"{human(self.first)}..{human(self.last)} {f'+{self.step}' if self.step else f'x{self.factor}'}"


@dataclasses.dataclass
class Check:
    program: str                 # all_reduce of nccl-tests, or the name of another program
    mode: str = ""               # "g": one thread; "t": a thread for each GPU; "mpi": a process for each; "": no nccl-tests
    gpus: int = 1
    sizes: Sizes | None = None
    types: tuple = ("float",)
    ops: tuple = ("sum",)
    all_roots: bool = False
    unalign: int = 0             # elements by which the buffers are shifted
    iterations: tuple = (2, 1)   # measured and warm-up calls of each row
    environment: dict = dataclasses.field(default_factory=dict)
    arguments: tuple = ()        # of a program that is none of nccl-tests
    library: str = "tested"      # "reference": the row must map that one; "none": the program links none
    limit_s: float = 60
    estimate_s: float = 4
    unit: str = ""               # checks of one unit stay in one part, in order
    logged: str = ""             # what the log must tell
    tool: str = ""               # of compute-sanitizer, under which the program runs
    extra: tuple = ()            # further options of an nccl-tests program
    cycles: int = 1              # how often it goes through the sizes
    least: int = 0               # cases that gpu_probe must have gone through, of those that there are

    def is_nccl_test(self):
        return self.sizes is not None

    def runs_alone(self):
        """Whether other programs on the GPUs would change what it finds: free memory, orders of stores, times."""
        return bool(self.unit) or not (self.is_nccl_test() or self.tool)

    def gpu_bytes(self):
        """Of each GPU, at most: nccl-tests holds input, output and what it expects; each process has a context."""
        return 3 * (self.sizes.last if self.sizes else 0) + GB

    def mode_text(self):
        return {"g": f"-g {self.gpus}", "t": f"-t {self.gpus} -g 1", "mpi": f"mpirun -np {self.gpus}", "": ""}[self.mode]

    def forced_text(self):
        return " ".join(f"{name}={value}" for name, value in self.environment.items())

    def sizes_text(self):
        return f"{self.sizes}{f' -u {self.unalign}' if self.unalign else ''}" if self.sizes else " ".join(self.arguments)

    def what_text(self):
        if not self.sizes:
            return ""
        text = f"{len(self.types)} types" if len(self.types) > 1 else self.types[0]
        if self.program in WITH_OPS:
            text += f" x {len(self.ops)} ops" if len(self.ops) > 1 else f" {self.ops[0]}"
        return text + (f" x {self.gpus} roots" if self.all_roots else "")

    def title(self):
        extra = " ".join((*self.extra, f"-N {self.cycles}" if self.cycles > 1 else ""))
        return " ".join(filter(None, (self.tool, self.unit or self.program, self.mode_text(), self.sizes_text(), self.what_text(),
                                      extra.strip(), self.forced_text(), "(reference)" if self.library == "reference" else "")))

    def options(self):
        """Of the nccl-tests program."""
        types = "all" if self.types == TYPES else self.types[0]
        ops = "all" if self.ops == OPS else self.ops[0]
        return ["-t", str(self.gpus if self.mode == "t" else 1), "-g", str(self.gpus if self.mode == "g" else 1), *self.sizes.arguments(),
                "-d", types, "-o", ops, "-r", "-1" if self.all_roots else "0",
                "-n", str(self.iterations[0]), "-w", str(self.iterations[1]), "-c", "1",
                *(["-u", str(self.unalign)] if self.unalign else []), *(["-N", str(self.cycles)] if self.cycles > 1 else []), *self.extra]

    def combinations(self, hopper):
        """The (type, operator, root) that must each appear once for every size; operator "" where the program has none."""
        types = [t for t in self.types if hopper or t not in HOPPER_TYPES]
        ops = self.ops if self.program in WITH_OPS else ("",)
        roots = (range(self.gpus) if self.all_roots else (0,)) if self.program in WITH_ROOTS else (-1,)
        return {(t, o, r) for t in types for o in ops for r in roots}


def human(size):
    for unit, name in ((GB, "G"), (MB, "M"), (KB, "K")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return str(size)


def probe(program, *arguments, limit_s=60, estimate_s=5, least=0):
    return Check(program, arguments=arguments, library="none", limit_s=limit_s, estimate_s=estimate_s, least=least)


def applications(gpus):
    """What uses the library as applications do: tests/gpu/check."""
    return [Check("check", gpus=gpus, arguments=(name, *more), limit_s=60 + 3 * seconds, estimate_s=seconds)
            for name, more, seconds in APPLICATIONS]


def sound(checks):
    """The checks without those that no library can pass: hypercube of one thread puts its steps into one group, and a step needs the one
    before it, so a thread has only one GPU there and more of them are threads."""
    titles, kept = {c.title() for c in checks}, []
    for check in checks:
        if check.program == "hypercube" and check.mode == "g" and check.gpus > 2:
            check = dataclasses.replace(check, mode="t")
            if check.title() in titles:  # is there anyway
                continue
        kept.append(check)
    return kept


def gate(gpus):
    """Two minutes, with four checks at a time: whether anything is broken."""
    quick = Sizes(8, 64 * MB, 8)
    checks = [probe("driver_probe", limit_s=30), probe("ll128_torture", "--seconds", "3", limit_s=30, estimate_s=6),
              probe("gpu_probe", "verify", "--ranks", str(gpus), "--devices", str(gpus), "--seconds", "6", limit_s=40, estimate_s=9, least=200)]
    checks += [Check(program, "g", gpus, quick, limit_s=20, estimate_s=4) for program in PROGRAMS]
    checks += [Check("all_reduce", mode, gpus, quick, limit_s=25, estimate_s=5) for mode in ("t", "mpi")]
    checks.append(Check("all_reduce", "g", gpus, Sizes(8, 64 * KB, 16), TYPES, OPS, limit_s=30, estimate_s=6))
    checks.append(Check("reduce", "g", gpus, Sizes(8, 8 * KB, 32), TYPES, OPS, all_roots=True, limit_s=30, estimate_s=6))
    checks.append(Check("all_reduce", "g", gpus, Sizes(3, 3_000_000, 7), ("int8",), unalign=1, limit_s=20))
    for protocol in PROTOCOLS:
        checks.append(Check("all_reduce", "g", gpus, quick, environment={"TUTTI_ALGO": "ring", "NCCL_PROTO": protocol}, limit_s=20))
    if gpus > 1:
        checks += host_memory(gpus, Sizes(8, 4 * MB, 32), ("g", "mpi"), HOST_MEMORY)
        checks += plain_memory(gpus, Sizes(8, 4 * MB, 32), ("all_reduce",), estimate_s=2.5)
        checks += [Check(program, "mpi", gpus, Sizes(8, 16 * MB, 8), environment={"TUTTI_MAPPED": "1"}, extra=("-G", "2"), limit_s=25, estimate_s=3)
                   for program in ("all_reduce", "all_gather")]
    return sound(checks)


def host_memory(gpus, sizes, modes, programs):
    """GPUs that do not use each other's memory; and a pair whose path is made to fail its probe."""
    checks = [Check(program, mode, gpus, sizes, environment={"NCCL_P2P_DISABLE": "1"}, limit_s=25, estimate_s=2.5,
                    logged="exchange data through host memory: NCCL_P2P_DISABLE=1") for mode in modes for program in programs]
    return checks + [Check(program, mode, gpus, sizes, environment={"TUTTI_P2P_PROBE": "spoil=0-1"}, limit_s=25, estimate_s=2.5,
                           logged="rank 1 saw .* where rank 0 wrote") for mode in modes for program in ("all_reduce",)]


def plain_memory(gpus, sizes, programs, estimate_s=4):
    """Processes that share memory by CUDA IPC, as where the driver has no virtual memory."""
    return [Check(program, "mpi", gpus, sizes, environment={"NCCL_CUMEM_ENABLE": "0"}, limit_s=25, estimate_s=estimate_s)
            for program in programs]


def bounded_memory(gpus, sizes):
    """No more of a GPU than what is needed: four ranks take 26 MiB (docs/decisions/0048-four-gpus-stars-and-slices.md)."""
    most = str(16 * max(gpus, 4) * MB)
    return [Check(program, mode, gpus, sizes, environment={"TUTTI_MEM_LIMIT": most})
            for program, mode in (("all_reduce", "g"), ("alltoall", "mpi"))]


def symmetric_windows(gpus):
    """-R 2: every type and operator, by the way that is chosen and by blocks that read and write the windows themselves; and what
    frameworks do, up to sizes that copy engines move."""
    checks = []
    for program in IN_WINDOWS:
        ops = OPS if program in WITH_OPS else ("sum",)
        for mode, row_s, environment in (("g", SLOW_ROW_S, {}), ("mpi", FAST_ROW_S, {"TUTTI_MAPPED": "1"})):
            check = Check(program, mode, gpus, Sizes(16, 4 * MB, 8), TYPES, ops, program in WITH_ROOTS, iterations=(1, 1),
                          environment=environment, extra=("-R", "2"))
            checks.append(checked_by_row(check, row_s))
        checks.append(Check(program, "t", gpus, Sizes(8, 64 * MB, 8), extra=("-R", "2")))
        checks.append(Check(program, "mpi", gpus, Sizes(8, 64 * MB, 8), extra=("-G", "20", "-R", "2")))
    check = Check("all_reduce", "mpi", gpus, Sizes(1024, 64 * MB, 16), TYPES, OPS, iterations=(2, 1),
                  environment={"TUTTI_COPY_ENGINES": "1"}, extra=("-R", "2"))
    checks.append(checked_by_row(check, FAST_ROW_S))
    return checks


def lent_buffers(gpus):
    """Graphs of processes, whose ranks lend each other their buffers: every type and operator by blocks, sizes that no vector divides, what
    engines do, and buffers that cannot be lent."""
    checks = []
    for program in IN_WINDOWS:
        ops = OPS if program in WITH_OPS else ("sum",)
        check = Check(program, "mpi", gpus, Sizes(16, 4 * MB, 8), TYPES, ops, program in WITH_ROOTS, iterations=(1, 1),
                      environment={"TUTTI_MAPPED": "1"}, extra=("-G", "2"))
        checks.append(checked_by_row(check, FAST_ROW_S))
        checks.append(Check(program, "mpi", gpus, Sizes(3, 300_000_000, 7), ("int8",), environment={"TUTTI_MAPPED": "1"}, extra=("-G", "2")))
        checks.append(Check(program, "mpi", gpus, Sizes(8, 256 * MB, 4), environment={"TUTTI_COPY_ENGINES": "1"}, extra=("-G", "2")))
    checks.append(Check("all_reduce", "mpi", gpus, Sizes(8, 64 * MB, 8), environment={"TUTTI_MAPPED": "1"}, unalign=1, extra=("-G", "2")))
    checks.append(Check("all_gather", "mpi", gpus, Sizes(8, 64 * MB, 8), environment={"NCCL_GRAPH_REGISTER": "0"}, extra=("-G", "2")))
    return checks


def as_frameworks_call(gpus):
    """Graphs, registered buffers, calls that are waited for one by one, and many repetitions."""
    sizes, small = Sizes(8, 64 * MB, 8), Sizes(8, 64 * KB)
    checks = []
    for program in PROGRAMS:
        for extra in (("-G", "20"), ("-R", "1"), ("-G", "20", "-R", "1"), ("-z", "1")):
            checks += [Check(program, mode, gpus, sizes, extra=extra) for mode in ("g", "t", "mpi")]
        checks += [Check(program, "mpi", gpus, small, extra=extra, cycles=100, limit_s=120, estimate_s=12)
                   for extra in ((), ("-G", "20"), ("-R", "1"), ("-z", "1"))]
    return checks


def sanitized(gpus):
    """The small conformance matrix, and calls of the library, under the tools of compute-sanitizer."""
    checks = []
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        for kernel in ("window", "linewindow", "cells", "lines", "simple", "bulk"):
            checks.append(Check("gpu_probe", library="none", tool=tool, limit_s=180, estimate_s=9, least=10, arguments=(
                "verify", "--kernel", kernel, "--ranks", str(gpus), "--devices", str(gpus), "--most", "3000", "--every", "16", "--seed", "1",
                "--seconds", "5", "--timeout", "60000", "--limit", "80000")))
    checks += [Check(program, "g", gpus, Sizes(8, 64 * KB, 32), tool="memcheck", iterations=(1, 1), limit_s=90, estimate_s=12)
               for program in PROGRAMS]
    if gpus > 1:
        for tool, seconds in (("memcheck", 12), ("racecheck", 20), ("synccheck", 12), ("initcheck", 12)):
            checks += [Check(program, "g", gpus, Sizes(8, 64 * KB, 32), tool=tool, iterations=(1, 1), limit_s=120, estimate_s=seconds,
                             environment={"TUTTI_MAPPED": "1"}, extra=("-R", "2")) for program in ("all_reduce", "all_gather")]
    return checks


def whole_range(gpus):
    """Every program, 8 B to 4 GB, in the three ways that ranks are placed."""
    sizes = Sizes(8, 4 * GB)
    return [Check(program, mode, gpus, sizes, iterations=(5, 1), limit_s=150, estimate_s=6 if mode == "mpi" else 18)
            for program in PROGRAMS for mode in ("g", "t", "mpi")]


SLOW_ROW_S, FAST_ROW_S = 0.011, 0.004  # of one thread, of processes


def checked_by_row(check, row_s):
    """What takes the time of many types is checking: so long for a row and GPU, seen on 4 H200."""
    rows = check.sizes.count() * len(check.combinations(hopper=True))
    seconds = 3 + row_s * check.gpus * rows
    return dataclasses.replace(check, estimate_s=seconds, limit_s=60 + 3 * seconds)


def matrix(gpus):
    """Every type, operator and root up to 1 MB. Those of reduce would take half a part at once, so its operators are apart."""
    slow, fast = ("g", SLOW_ROW_S), ("mpi", FAST_ROW_S)
    checks = []
    for program in PROGRAMS:
        all_ops = [(op,) for op in OPS] if program == "reduce" else [OPS] if program in WITH_OPS else [("sum",)]
        for ops, (mode, row_s) in itertools.product(all_ops, (slow, fast) if program == "all_reduce" else (slow,)):
            check = Check(program, mode, gpus, Sizes(8, MB), TYPES, ops, program in WITH_ROOTS, iterations=(1, 1))
            checks.append(checked_by_row(check, row_s))
    return checks


def odd(gpus):
    """Sizes that no vector divides, from addresses that none is aligned to."""
    checks = []
    for program in PROGRAMS:
        checks.append(Check(program, "g", gpus, Sizes(1, 4099, 0, 61), ("int8",), unalign=1))
        checks.append(Check(program, "g", gpus, Sizes(3, 300_000_000, 7), ("int8",), unalign=3))
        checks.append(Check(program, "g", gpus, Sizes(8, 10_000_000, 5), TYPES, unalign=1, limit_s=90, estimate_s=6))
    checks.append(Check("all_reduce", "t", gpus, Sizes(3, 30_000_000, 3), ("int8",), unalign=1))
    checks.append(Check("all_reduce", "mpi", gpus, Sizes(3, 30_000_000, 3), ("int8",), unalign=1))
    return checks


def forced(gpus):
    """Every algorithm with every protocol, and the kernel of the bulk copy engine also where it combines."""
    sizes = Sizes(8, 64 * MB, 8)
    checks = [Check(program, "g", gpus, sizes, environment={"TUTTI_ALGO": algorithm, "NCCL_PROTO": protocol})
              for program, algorithms in ALGORITHMS.items() for algorithm in algorithms for protocol in PROTOCOLS]
    checks += [Check("all_reduce", "g", gpus, sizes, environment={"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol})
               for algorithm in NCCL_ALGORITHMS for protocol in PROTOCOLS]
    checks.append(Check("all_reduce", "g", gpus, sizes, environment={"TUTTI_ALGO": "ring", "NCCL_PROTO": "Simple", "TUTTI_BULK": "1"}))
    return checks


def timings(gpus, repeats=3):
    """Both libraries in turn, so that a change of the machine's state meets both."""
    return [Check(program, "g", gpus, Sizes(8, 4 * GB), iterations=(20, 5), library=library, limit_s=150, estimate_s=20,
                  unit=f"time {program}")
            for program in TIMED for _ in range(repeats) for library in ("tested", "reference")]


def full(gpus, with_reference):
    checks = [probe("driver_probe", limit_s=60), probe("ll128_torture", "--seconds", "30", limit_s=90, estimate_s=35),
              probe("gpu_probe", "verify", "--ranks", str(gpus), "--devices", str(gpus), "--seconds", "90", limit_s=150, estimate_s=95, least=2000),
              # Algorithms of several hosts, on ranks that share GPUs; and counts that are about to have more than 32 bits.
              probe("gpu_probe", "verify", "--ranks", "4", "--devices", str(min(gpus, 4)), "--nodes", "2", "--seconds", "20", limit_s=60,
                    estimate_s=24, least=200),
              probe("gpu_probe", "verify", "--ranks", str(gpus), "--devices", str(gpus), "--start", "4294967280", "--seconds", "20",
                    limit_s=60, estimate_s=24, least=200)]
    checks += whole_range(gpus) + matrix(gpus) + odd(gpus) + forced(gpus) + as_frameworks_call(gpus) + sanitized(gpus)
    if gpus > 1:
        checks.append(probe("gpu_probe", "absent", "--algorithm", "ring", "--collective", "AllReduce", "--kernel", "lines", "--ranks",
                            str(gpus), "--devices", str(gpus), "--timeout", "1000"))
        checks += host_memory(gpus, Sizes(8, 256 * MB, 2), ("g", "t", "mpi"), PROGRAMS)
        checks += plain_memory(gpus, Sizes(8, 64 * MB, 8), ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"))
        checks += bounded_memory(gpus, Sizes(8, 64 * MB, 8)) + symmetric_windows(gpus) + lent_buffers(gpus) + applications(gpus)
    return sound(checks) + (timings(gpus) if with_reference else [])


def part_of(checks, index, parts):
    """Part `index` of `parts` (from 1): about equal estimates, every check in exactly one part, units whole."""
    total, before, chosen, units = sum(c.estimate_s for c in checks), 0.0, [], {}
    for check in checks:
        number = min(parts, int(before / total * parts) + 1)
        if check.unit:
            number = units.setdefault(check.unit, number)
        if number == index:
            chosen.append(check)
        before += check.estimate_s
    return chosen
