"""The table at the end, and the ratios beside the reference."""
import collections
import statistics

from . import cases
from .judge import NOT_RUN, OK

HEAD = ("#", "program", "mode", "sizes", "types, ops", "forced", "wrong", "time", "verdict",
        "libnccl of the processes: path, build id", "errors, notes")
FAR = 1.25


def cells(index, result):
    check = result.check
    program = (check.unit or check.program) + (" (reference)" if check.library == "reference" else "")
    library = "" if result.verdict == NOT_RUN else result.library_text()
    return (str(index), program, check.mode_text(), check.sizes_text(), check.what_text(), check.forced_text(),
            result.wrong, f"{result.seconds:.1f} s" if result.seconds else "", result.verdict, library,
            "; ".join([*result.errors, *result.notes]))


def aligned(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def table(results):
    return "\n".join(aligned([HEAD, *(cells(i, r) for i, r in enumerate(results, 1))]))


def summary(results):
    counts = collections.Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in counts) or "no check"


def ratios(results):
    """Time of tutti divided by the reference's, out of place, medians; "-" where a run failed or is missing. Empty without any."""
    times = collections.defaultdict(lambda: collections.defaultdict(list))
    failed = {r.check.program for r in results if r.check.unit and r.verdict != OK}
    for result in results:
        if result.check.unit:
            for row in result.rows:
                times[result.check.program, row.size][result.check.library].append(row.time_us[0])
    programs = [p for p in cases.TIMED if any(key[0] == p for key in times)]
    if not programs:
        return ""
    rows, far, all_cells = [("size", *programs)], 0, 0
    for size in sorted({key[1] for key in times}):
        row = [str(size)]
        for program in programs:
            ratio = None if program in failed else ratio_of(times.get((program, size), {}))
            all_cells, far = all_cells + (ratio is not None), far + (ratio is not None and ratio > FAR)
            row.append("-" if ratio is None else f"{ratio:.2f}{' *' if ratio > FAR else ''}")
        rows.append(tuple(row))
    return "\n".join(["time of tutti / time of the reference, out of place, medians", *aligned(rows),
                      f"* above {FAR}: {far} of {all_cells}"])


def ratio_of(both):
    if not both.get("tested") or not both.get("reference"):
        return None
    reference = statistics.median(both["reference"])
    return statistics.median(both["tested"]) / reference if reference > 0 else None
