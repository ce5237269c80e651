"""The goals, as functions of measured rows: what was seen, and whether it is enough."""
import dataclasses

from support.program import size_text

K, M, G = 1 << 10, 1 << 20, 1 << 30
MANY = 1 << 62
PEAK = 0.95  # G9: of the own peak
MOVES = ("all_gather", "broadcast", "alltoall", "gather", "scatter", "sendrecv")
LEAST_LOSS = 0.001  # G10: a smaller loss is not told from none


@dataclasses.dataclass
class Seen:
    """One goal's verdict. `must` and `stretch` are whether; None: not measured, and `text` says why. `is_limited`: what the link was measured
    to carry would not be enough, whatever the library did."""
    text: str
    must: bool | None = None
    stretch: bool | None = None
    is_limited: bool = False


@dataclasses.dataclass
class Goal:
    name: str
    what: str
    must: str
    stretch: str
    judge: object  # of Measured to Seen


@dataclasses.dataclass
class Measured:
    """All that the goals are judged by; what is missing is empty."""
    cells: list = dataclasses.field(default_factory=list)
    types: list = dataclasses.field(default_factory=list)        # cells of all types and operators
    sweep: list = dataclasses.field(default_factory=list)        # cells with CTA limits
    gathers: list = dataclasses.field(default_factory=list)      # cells of what only moves, on symmetric windows
    windows: list = dataclasses.field(default_factory=list)      # cells of all-reduces there
    engines: list = dataclasses.field(default_factory=list)      # cells of both libraries' copy engines
    overlap: list = dataclasses.field(default_factory=list)
    lives: dict = dataclasses.field(default_factory=dict)        # by "a" and "b"
    limits: dict = dataclasses.field(default_factory=dict)       # what gpu_limits --only links has kept
    unabortable: list = dataclasses.field(default_factory=list)  # cells of the library and of a build whose waits have no end


def of(cells, ops, least=0, most=MANY, mode=None):
    return [c for c in cells if c["op"] in ops and least <= c["bytes"] <= most and (mode is None or c["mode"] == mode)]


def named(cell):
    kind = "" if cell["type"] == "float" and cell["redop"] in (None, "sum") else f" {cell['type']} {cell['redop']}"
    return f"{cell['op']}{kind} {size_text(cell['bytes'])} {cell['mode']}"


def worst(cells):
    """The smallest ratio, and where."""
    cell = min(cells, key=lambda c: c["ratio"])
    return cell["ratio"], f"{cell['ratio']:.2f} ({named(cell)}, least of {len(cells)})"


def carried(cell, limits):
    """(GB/s that the link was measured to carry at most for a row, by what): engines where they can be had, in graphs and where nothing is
    reduced, as peers map captured buffers; stores of kernels otherwise."""
    rates = [(limits.get("storesGBps"), "stores")]
    if cell["mode"] == "graph" and cell["op"] in MOVES:
        rates.append((limits.get("enginesGBps"), "engines"))
    return max((pair for pair in rates if pair[0]), default=(None, ""))


def allowed(cells, at_least, limits):
    """The most that the link would make of each row below `at_least`: the largest, and in words. Bus bandwidth is what a GPU sends a second in
    these operations."""
    below = [(carried(cell, limits), cell) for cell in cells if cell["ratio"] < at_least and cell["b"]["busGBps"] > 0]
    below = [(rate / cell["b"]["busGBps"], rate, what, cell) for (rate, what), cell in below if rate]
    if not below:
        return None, ""
    most, rate, what, cell = max(below, key=lambda row: row[0])
    if most > 2 * at_least:
        return most, ""  # something else holds it back
    return most, f"; {what} at {rate:.0f} GB/s would make {most:.2f} of {named(cell)}, where NCCL sends {cell['b']['busGBps']:.0f}"


def ratio_goal(*parts):
    """Each part: (operations, smallest, largest, mode, must, stretch); all must hold."""
    def judge(measured, cells_of=lambda measured: measured.cells):
        texts, must, stretch, is_limited = [], True, True, True
        for ops, least, most, mode, at_least, wished in parts:
            cells = of(cells_of(measured), ops, least, most, mode)
            if not cells:
                return Seen(f"no row of {'/'.join(ops)} from {size_text(least)}")
            ratio, text = worst(cells)
            limit, why = (None, "") if ratio >= at_least else allowed(cells, at_least, measured.limits)
            texts.append(text + why)
            is_limited = is_limited and (ratio >= at_least or (limit is not None and limit < at_least))
            must, stretch = must and ratio >= at_least, stretch and ratio >= wished
        return Seen("; ".join(texts), must, stretch, is_limited and not must)
    return judge


def small(measured):
    if not measured.types:
        return Seen("no rows of all types and operators")
    return ratio_goal((("all_reduce",), 0, 16 * K, "graph", 2.0, 2.8))(measured, lambda m: m.cells + m.types)


def middle(measured):
    ranks = measured.cells[0]["ranks"] if measured.cells else 2
    return ratio_goal((("all_reduce",), 32 * K, M if ranks == 2 else 512 * K, None, 1.6, 2.2))(measured)


def large(measured):
    """Judged on symmetric windows: on plain memory every byte is stored twice, which takes more blocks than that (gpu_limits, docs/performance/gpu.md)."""
    seen = []
    for where, rows in (("symmetric windows", measured.windows), ("plain memory", measured.cells)):
        cells = of(rows, ("all_reduce",), 64 * M)
        if not cells:
            return Seen(f"no row of all_reduce from 64 MiB on {where}")
        ratio, text = worst(cells)
        ctas = max(cell["a"]["ctas"] for cell in cells)
        speed = max(cell["a"]["busGBps"] for cell in cells)
        seen.append((f"{where}: {text}, {ctas} CTAs, at most {speed:.0f} GB/s", ratio, 0 < ctas <= 12))
    (_, ratio, are_few), _ = seen
    return Seen("; ".join(text for text, _, _ in seen), ratio >= 1.0 and are_few, ratio >= 1.08 and are_few)


def zero_sm(measured):
    cells = of(measured.gathers, ("all_gather", "broadcast"), 64 * M)
    if not cells:
        return Seen("no row on symmetric windows")
    ratio, text = worst(cells)
    ctas = max(cell["a"]["ctas"] for cell in cells)  # flags before and behind the copies: one at a time
    return Seen(f"{text}; {ctas} CTAs", ratio >= 1.05 and ctas <= 2, ratio >= 1.10 and ctas <= 2)


def engines(measured):
    cells = of(measured.engines, ("all_gather",), 0, 256 * K)
    if not cells:
        return Seen("no row under NCCL_CTA_POLICY=2")
    ratio, text = worst(cells)
    return Seen(f"{text}; CTAs {max(c['a']['ctas'] for c in cells)} against {max(c['b']['ctas'] for c in cells)}", ratio >= 1.5, ratio >= 3)


def fewest_sms(cells, side):
    """The fewest SMs that reach PEAK of the side's best bus bandwidth over all limits; None without rows."""
    speeds = [(cell[side]["sms"], cell[side]["busGBps"]) for cell in cells if cell[side]["sms"]]
    if not speeds:
        return None
    best = max(speed for _, speed in speeds)
    return min(count for count, speed in speeds if speed >= PEAK * best)


def budget(measured):
    texts, least = [], None
    for op in dict.fromkeys(cell["op"] for cell in measured.sweep):
        cells = of(measured.sweep, (op,))
        top = max(cell["bytes"] for cell in cells)
        own, other = (fewest_sms([c for c in cells if c["bytes"] == top], side) for side in ("a", "b"))
        if own is None or other is None:
            continue
        texts.append(f"{op} {own} against {other}")
        least = other / own if least is None else min(least, other / own)
    if least is None:
        return Seen("no sweep of CTA limits")
    return Seen(f"{least:.1f}x fewer at least: {', '.join(texts)}", least >= 2, least >= 4)


def overlap(measured):
    losses = {}
    for row in measured.overlap:
        if row["overlap"] == "all_reduce":
            losses.setdefault(row["bytes"], {})[row["side"]] = row["productBesideUs"] / row["productAloneUs"] - 1
    pairs = {size: both for size, both in losses.items() if len(both) == 2}
    if not pairs:
        return Seen("no overlap with an all-reduce")
    texts, least = [], float("inf")
    for size, both in sorted(pairs.items()):
        own, other = (max(both[side], LEAST_LOSS) for side in ("a", "b"))
        least = min(least, other / own)
        texts.append(f"{size_text(size)} {100 * both['a']:.1f}% against {100 * both['b']:.1f}%")
    return Seen(f"{least:.1f}x lower at least: {', '.join(texts)}", least >= 1.3, least >= 3)


def memory(measured):
    if set(measured.lives) != {"a", "b"}:
        return Seen("no life of both libraries")
    # A communicator beside another one: what the first takes as well is shared by all of a process, the code of kernels above all.
    own, other = (measured.lives[side]["besideBytes"] / M for side in ("a", "b"))
    first, otherFirst = (measured.lives[side]["allToAllBytes"] / M for side in ("a", "b"))
    if own <= 0 or other <= 0:
        return Seen(f"no memory of a GPU was taken: {own:.1f} MiB against {other:.1f}")
    ratio = other / own
    return Seen(f"{own:.1f} MiB against {other:.0f}, {ratio:.0f}x less; the first of a process, kernels included, {first:.1f} against "
                f"{otherFirst:.0f}", own <= 32 and ratio >= 20, own <= 32 and ratio >= 60)


def init(measured):
    if "a" not in measured.lives:
        return Seen("no life of the library")
    own, other = measured.lives["a"]["readyMs"], measured.lives.get("b", {}).get("readyMs")
    return Seen(f"{own:.0f} ms" + (f" against {other:.0f}" if other else ""), own <= 250, own <= 100)


def abortability(measured):
    cells = of(measured.unabortable, ("all_reduce",), 0, 8)
    if not cells:
        return Seen("needs --unabortable LIB: a build with -DTUTTI_CUDA_ENDLESS_WAITS=ON")
    cell = max(cells, key=lambda c: c["ratio"])
    with_us, without_us = cell["b"]["medianUs"], cell["a"]["medianUs"]
    cost = with_us - without_us
    return Seen(f"{cost:+.3f} us, {100 * cost / without_us:+.1f}% ({named(cell)}: {with_us:.2f} against {without_us:.2f} without)",
                cost <= max(0.02 * without_us, 0.1), cost <= max(0.005 * without_us, 0.02))


def cpu_time(measured):
    cells = [c for c in of(measured.cells, ("all_reduce",), 0, 64 * K, "eager") if c["a"]["cpuUs"]]
    if not cells:
        return Seen("no eager row of all_reduce up to 64 KiB")
    least = min(cells, key=lambda c: c["b"]["cpuUs"] / c["a"]["cpuUs"])
    cpu = least["b"]["cpuUs"] / least["a"]["cpuUs"]
    ratio, text = worst(cells)
    return Seen(f"CPU {cpu:.2f} ({named(least)}: {least['a']['cpuUs']:.2f} us against {least['b']['cpuUs']:.2f}); call {text}",
                cpu >= 1.6 and ratio >= 1.6, cpu >= 2 and ratio >= 2)


def none_worse(measured):
    cells = [c for c in measured.cells if c["ratio"] < 0.97]
    if not measured.cells:
        return Seen("no rows")
    if not cells:
        return Seen(f"none of {len(measured.cells)} rows", True, True)
    return Seen(f"{len(cells)} of {len(measured.cells)} rows; {worst(cells)[1]}", False, False)


GOALS = (
    Goal("G1", "all-reduce to 16 KiB, graph, plain memory", "2.0x", "2.8x", small),
    Goal("G2", "all-reduce 32 KiB to 1 MiB (2 GPUs), to 512 KiB (4)", "1.6x", "2.2x", middle),
    Goal("G3", "all-reduce from 64 MiB with at most 12 CTAs, symmetric windows", "1.00x", "1.08x", large),
    Goal("G4", "all-to-all, all-gather, reduce-scatter", "1.12x from 128 MiB (reduce-scatter 1.05x), 1.4x at 2 to 32 MiB", "1.2x, 1.8x",
         ratio_goal((("alltoall", "all_gather"), 128 * M, MANY, None, 1.12, 1.2), (("reduce_scatter",), 128 * M, MANY, None, 1.05, 1.2),
                    (("alltoall", "all_gather", "reduce_scatter"), 2 * M, 32 * M, None, 1.4, 1.8))),
    Goal("G5", "all-to-all to 4 KiB, graph", "1.6x", "1.8x", ratio_goal((("alltoall",), 0, 4 * K, "graph", 1.6, 1.8))),
    Goal("G6", "all-gather, broadcast from 64 MiB under NCCL_CTA_POLICY=2 (no SM for data), symmetric windows", "1.05x", "1.10x", zero_sm),
    Goal("G7", "all-gather of at most 256 KiB under NCCL_CTA_POLICY=2, symmetric windows", "1.5x", "3x", engines),
    Goal("G8", "send/recv to 16 KiB; 128 KiB to 16 MiB; from 64 MiB", "1.5x; 1.2x; 1.05x", "1.9x; 1.6x; 1.1x",
         ratio_goal((("sendrecv",), 0, 16 * K, None, 1.5, 1.9), (("sendrecv",), 128 * K, 16 * M, None, 1.2, 1.6),
                    (("sendrecv",), 64 * M, MANY, None, 1.05, 1.1))),
    Goal("G9", "SMs to reach 95% of the own peak, symmetric windows", "2x fewer", "4x fewer", budget),
    Goal("G10", "loss of a product of matrices beside an all-reduce, symmetric windows", "1.3x lower", "3x lower", overlap),
    Goal("G11", "GPU memory after an all-reduce and an all-to-all", "32 MiB and 20x less", "60x less", memory),
    Goal("G12", "until the first all-reduce has ended", "250 ms", "100 ms", init),
    Goal("G22", "what it costs that calls can be aborted, 8 bytes", "2% or 0.1 us", "0.5%", abortability),
    Goal("G23", "CPU time of an eager all-reduce to 64 KiB, and its time", "1.6x, 1.6x", "2x, 2x", cpu_time),
    Goal("all", "rows worse by more than 3%", "none", "none", none_worse),
)


def verdict(seen):
    if seen.must is None:
        return "not measured"
    return "stretch" if seen.stretch else "must" if seen.must else "no: the link's limit" if seen.is_limited else "**no**"


def table(measured):
    lines = ["| goal | what | must | stretch | seen | met |", "|---|---|---|---|---|---|"]
    seen = [(goal, goal.judge(measured)) for goal in GOALS]
    lines += [f"| {goal.name} | {goal.what} | {goal.must} | {goal.stretch} | {s.text} | {verdict(s)} |" for goal, s in seen]
    return "\n".join(lines), sum(s.must is not True and not s.is_limited for _, s in seen)
