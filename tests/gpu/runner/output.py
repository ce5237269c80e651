"""Reads what an nccl-tests program prints: rows, count of wrong elements, closing lines. Pure functions of text.

A row is: size, count, type, redop, root, then time, algorithm and bus bandwidth and wrong elements, out of place and in place. The operator
may be blank (hypercube_perf), so the columns are found from both ends. "N/A" is a result that the program does not check.
"""
import dataclasses
import math
import re

BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s+(\w+)")
REDUCED = re.compile(r"^#\s*Reducing maxBytes to (\d+)")
TROUBLE = re.compile(r"Test (?:NCCL |CUDA )?failure|[Ss]egmentation fault|\bAbort(?:ed|ing)\b|NCCL WARN|"
                     r"unhandled cuda error|Invalid number of GPUs")

CHOICE = re.compile(r"-> algorithm (\w+)(?:\W+protocol (\w+))?")  # NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING


@dataclasses.dataclass
class Row:
    size: int
    type: str
    op: str
    root: int
    time_us: tuple  # out of place, in place
    wrong: tuple    # the same; None where the program does not check


@dataclasses.dataclass
class Output:
    rows: list
    malformed: list            # lines that begin as a row and are none: cut off, or mixed with another line
    out_of_bounds: int | None  # None: the closing line is missing
    bounds_verdict: str
    reduced_to: int | None     # bytes, where the GPUs' memory is too small for the largest size

    @property
    def wrong(self):
        return sum(w for row in self.rows for w in row.wrong if w is not None)

    @property
    def unchecked(self):
        return sum(w is None for row in self.rows for w in row.wrong)


def number(text):
    value = float(text)
    if math.isnan(value) or value < 0:
        raise ValueError(text)
    return value


def parse_row(tokens):
    """Of a line's words; ValueError when they are no whole row."""
    if len(tokens) not in (12, 13):
        raise ValueError("columns")
    size, root, results = int(tokens[0]), int(tokens[-9]), tokens[-8:]
    int(tokens[1])
    for bandwidth in results[1:3] + results[5:7]:
        float(bandwidth)
    wrong = tuple(None if w == "N/A" else number(w) for w in (results[3], results[7]))
    return Row(size, tokens[2], tokens[3] if len(tokens) == 13 else "", root, (number(results[0]), number(results[4])), wrong)


def parse(text):
    out = Output([], [], None, "", None)
    for line in text.splitlines():
        if match := BOUNDS.match(line):
            out.out_of_bounds, out.bounds_verdict = int(match[1]), match[2]
        elif match := REDUCED.match(line):
            out.reduced_to = int(match[1])
        tokens = line.split()
        if len(tokens) < 2 or not (tokens[0].isdigit() and tokens[1].isdigit()):
            continue
        try:
            out.rows.append(parse_row(tokens))
        except ValueError:
            out.malformed.append(line)
    return out


def trouble(text):
    """The first line that tells of an error, or nothing."""
    return next((line.strip() for line in text.splitlines() if TROUBLE.search(line)), "")


def choices(log):
    """Algorithms and protocols that the library says it took, as two sets; empty where it does not say."""
    found = CHOICE.findall(log)
    return {algorithm for algorithm, _ in found}, {protocol for _, protocol in found if protocol}
