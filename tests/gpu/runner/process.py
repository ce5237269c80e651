"""Runs a program with a time limit, watches which libnccl every process of it maps, and ends it with all its descendants.

Only processes that descend from the one started here are ever ended, by process id and start time.
"""
import dataclasses
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import time

LOOKS = ((1, 0.01), (3, 0.1), (float("inf"), 0.5))  # until so many seconds, a look every so many: reading maps holds up their process
KILL_AFTER_S, GIVE_UP_S = 1, 10                      # after SIGTERM; after SIGKILL


@dataclasses.dataclass(frozen=True)
class Library:
    path: str
    build_id: str

    def __str__(self):
        return f"{self.path} {self.build_id}"


@dataclasses.dataclass
class Outcome:
    exit_code: int | None  # None: it did not end, not even when killed
    timed_out: bool
    seconds: float
    output: str            # standard output
    log: str               # standard error and what the libraries logged
    mapped: dict           # process id -> set of Library
    running: list          # at the limit: a line for each process
    left_behind: list      # processes that outlived the program


def build_id(path):
    """The GNU build id of an ELF file, in hex; a word in brackets when there is none."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                return "(no 64-bit ELF file)"
            offset, entry, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
            for i in range(count):
                file.seek(offset + i * entry)
                kind, _, start, _, _, size = struct.unpack("<IIQQQQ", file.read(40))
                if kind != 4:  # PT_NOTE
                    continue
                file.seek(start)
                if found := note_of(file.read(size)):
                    return found
    except (OSError, struct.error) as error:
        return f"(unreadable: {error})"
    return "(no build id)"


def note_of(notes):
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        name = notes[at + 12:at + 12 + name_size]
        start = at + 12 + (name_size + 3) // 4 * 4
        if kind == 3 and name == b"GNU\0":
            return notes[start:start + size].hex()
        at = start + (size + 3) // 4 * 4
    return ""


def library_at(path):
    real = os.path.realpath(path)
    return Library(real, build_id(real))


def stat_of(pid):
    """Parent, start time, state, seconds of processor time and name; nothing for a process that is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, rest = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
    return int(rest[1]), int(rest[19]), rest[0], (int(rest[11]) + int(rest[12])) / os.sysconf("SC_CLK_TCK"), name


def family_of(root):
    """Process ids and start times of a process and its descendants."""
    parents = {int(entry): stat for entry in os.listdir("/proc") if entry.isdigit() and (stat := stat_of(int(entry)))}
    family, grown = {root} & parents.keys(), True
    while grown:
        more = {pid for pid, stat in parents.items() if stat[0] in family} - family
        family |= more
        grown = bool(more)
    return {(pid, parents[pid][1]) for pid in family}


def libraries_of(pid):
    found = set()
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line[line.index("/"):].rstrip("\n") if "/" in line else ""
                if os.path.basename(path).startswith("libnccl.so"):
                    found.add(path)
    except OSError:
        pass
    return found


class Watch:
    """Looks at a process and its descendants while they run."""

    def __init__(self, root):
        self.root, self.seen, self.mapped, self.ids = root, set(), {}, {}

    def look(self):
        self.seen |= family_of(self.root)
        for pid, _ in self.seen:
            for path in libraries_of(pid):
                if path not in self.ids:
                    self.ids[path] = Library(path, "(deleted)") if path.endswith(" (deleted)") else Library(path, build_id(path))
                self.mapped.setdefault(pid, set()).add(self.ids[path])

    def alive(self):
        return [pid for pid, start in self.seen if (stat := stat_of(pid)) and stat[1] == start and stat[2] != "Z"]

    def describe(self):
        lines = []
        for pid in sorted(self.alive()):
            if stat := stat_of(pid):
                lines.append(f"process {pid} {stat[4]}: state {stat[2]}, {stat[3]:.1f} s of processor time")
        return lines


def end(child, watch):
    """SIGTERM to the process group and everything seen, then SIGKILL to what is left. The exit code, or nothing if it does not go away."""
    watch.look()
    for sign, patience in ((signal.SIGTERM, KILL_AFTER_S), (signal.SIGKILL, GIVE_UP_S)):
        for pid in watch.alive():
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                pass
        until = time.monotonic() + patience
        while time.monotonic() < until and (child.poll() is None or watch.alive()):
            time.sleep(0.02)
    return child.poll()


def follow(child, watch, until):
    """Looks until the child ended (true) or time is over (false)."""
    began = time.monotonic()
    while child.poll() is None:
        watch.look()
        now = time.monotonic()
        if now > until:
            return False
        try:
            child.wait(next(pause for end, pause in LOOKS if now - began < end))
        except subprocess.TimeoutExpired:
            pass
    return True


def outliving(watch):
    """What is still there a second after the program ended: a launcher's processes may take a moment to go."""
    until = time.monotonic() + 1
    while watch.alive() and time.monotonic() < until:
        time.sleep(0.02)
    return watch.describe()


def run(command, environment, limit_s):
    """Runs to the end or to the limit; never raises for what the program does."""
    with tempfile.TemporaryDirectory(prefix="tutti-gpu-") as folder:
        place = pathlib.Path(folder)
        environment = {**environment, "NCCL_DEBUG_FILE": f"{folder}/log.%h.%p"}
        began = time.monotonic()
        with open(place / "out", "wb") as out, open(place / "err", "wb") as err:
            try:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True)
            except OSError as error:
                return Outcome(127, False, 0, "", str(error), {}, [], [])
            watch, timed_out, running, left = Watch(child.pid), False, [], []
            try:
                timed_out = not follow(child, watch, began + limit_s)
                seconds = time.monotonic() - began
                if timed_out:
                    running = watch.describe()
                else:
                    left = outliving(watch)
            finally:  # also when the user interrupts the runner
                code = end(child, watch)
        texts = [(place / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err")]
        logs = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(place.glob("log.*"))]
        return Outcome(code, timed_out, seconds, texts[0], "".join([texts[1], *logs]), watch.mapped, running, left)
