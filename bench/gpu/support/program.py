"""Runs bench_gpu and reads what it writes."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# What a machine says of itself, such as that its switches do no multicast, stays; what a user or a launcher has set goes.
KEPT = ("NCCL_NVLS_ENABLE",)
CLEARED = ("NCCL_", "TUTTI_", "LD_PRELOAD")
GRACE_S = 60  # what is under way when --seconds are over may take so long


def add_arguments(parser, has_reference=True):
    """What every script here takes."""
    parser.add_argument("library", type=pathlib.Path, help="libnccl.so.2 that is looked at")
    if has_reference:
        parser.add_argument("reference", type=pathlib.Path, help="libnccl.so.2 that it is compared with")
    parser.add_argument("--program", type=pathlib.Path, help="bench_gpu; beside the library's folder, in ../bin")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs")
    parser.add_argument("--seconds", type=float, default=450, help="for everything")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/gpu"), help="folder for rows, tables and drawings (out/gpu)")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for both libraries")
    parser.add_argument("--a-env", action="append", default=[], metavar="NAME=VALUE", help="for the library alone")
    parser.add_argument("--b-env", action="append", default=[], metavar="NAME=VALUE", help="for the reference alone")
    parser.add_argument("--host", action="store_true", help="ranks without GPUs: to try these scripts out")


class Failure(Exception):
    """Why a run gave nothing that can be used."""


class Rows:
    """What one run of bench_gpu wrote."""

    def __init__(self, lines=()):
        self.header, self.memory, self.cells, self.others = {}, [], [], []
        for line in lines:
            if "header" in line:
                self.header = line["header"]
            elif "memory" in line:
                self.memory.append(line["memory"])
            elif "op" in line:
                self.cells.append(line)
            else:
                self.others.append(line)

    def names(self):
        return [self.header.get(side, {}).get("name", side) for side in ("a", "b")]

    def add(self, other):
        self.header = self.header or other.header
        self.memory += other.memory
        self.cells += other.cells
        self.others += other.others

    def is_complete(self):
        """Whether a comparison came to its end before its time was up, in all its modes."""
        ends = [other["complete"] for other in self.others if "complete" in other]
        return bool(ends) and all(end == 1 for end in ends)

    def wrong(self):
        return sum(cell[side]["wrong"] for cell in self.cells for side in ("a", "b"))


def read_rows(path):
    """Of a file that a run left, also of one that was cut off in its last line."""
    lines = []
    for text in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return Rows(lines)


class Program:
    def __init__(self, options, show=True):
        self.options, self.show = options, show
        self.end = time.monotonic() + options.seconds
        library = options.library.resolve()
        self.path = options.program or library.parent.parent / "bin" / "bench_gpu"
        for needed in filter(None, (self.path, library, getattr(options, "reference", None))):
            if not pathlib.Path(needed).exists():
                sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {needed} does not exist")
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-bench-")
        options.out.mkdir(parents=True, exist_ok=True)

    def left(self):
        return self.end - time.monotonic()

    def apart(self, library, other):
        """A copy of `library` where it is the same file as `other`, which the loader would take for one."""
        library = pathlib.Path(library).resolve()
        if other is None or not os.path.samefile(library, other):
            return library
        copy = pathlib.Path(self.folder.name) / f"copy-{library.name}"
        if not copy.exists():
            shutil.copyfile(library, copy)
        return copy

    def environment(self):
        kept = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(CLEARED)}
        if self.options.host:
            kept["TUTTI_DEVICE"] = "host"
        return kept | {"NCCL_DEBUG": "WARN"} | dict(pair.split("=", 1) for pair in self.options.env)

    def command(self, command, words, rows, library, reference, a_env, b_env, names):
        words = [str(self.path), command, *map(str, words), "--a", str(library), "--json", str(rows), "-n", str(self.options.ranks)]
        if reference is not None:
            words += ["--b", str(self.apart(reference, library))]
        for option, value in zip(("--a-name", "--b-name"), names):
            words += [option, value]
        for option, pairs in (("--a-env", a_env), ("--b-env", b_env if reference is not None else [])):
            for pair in pairs:
                words += [option, pair]
        return words + (["--host"] if self.options.host else [])

    def run(self, command, words=(), library=None, reference=None, a_env=None, b_env=None, names=(), name="rows", seconds=None):
        """Rows of one run, also where the time ended it. Failure where it broke, hung or had a wrong result."""
        seconds = min(self.left(), seconds or self.left())
        if seconds <= 0:
            raise Failure("the time was up")
        rows = self.options.out / f"{name}.json"
        rows.unlink(missing_ok=True)
        library = (library or self.options.library).resolve()
        words = self.command(command, [*words, "--seconds", f"{seconds:.0f}"], rows, library, reference,
                             self.options.a_env if a_env is None else a_env, self.options.b_env if b_env is None else b_env, names)
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                              env=self.environment()) as process:
            output, timed_out = self.follow(process, seconds + GRACE_S)
        if process.returncode != 0 or timed_out:
            why = "wrong elements" if process.returncode == 1 else "no end" if timed_out else f"exit code {process.returncode}"
            raise Failure(f"{why}: {' '.join(words)}\n{output[-1500:]}")
        return read_rows(rows)

    def follow(self, process, seconds):
        """What it prints, and whether its time was over."""
        import threading
        over = threading.Event()

        def end():
            over.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(seconds, end)
        timer.start()
        output = []
        for line in process.stdout:
            output.append(line)
            if self.show:
                print(line, end="", flush=True)
        process.wait()
        timer.cancel()
        return "".join(output), over.is_set()

    def draw(self, rows, drawing):
        subprocess.run([str(self.path), "plot", str(rows), str(drawing)], check=True)


def size_text(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def parse_size(text):
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if not match:
        raise ValueError(f"'{text}' is no size such as 64K")
    return int(float(match[1]) * 1024 ** " KMG".index(match[2].upper() or " "))
