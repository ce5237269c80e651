"""Rows of a comparison as tables of Markdown, and in few words."""
import math

from support.program import size_text

WORSE = 0.97  # a row below is worse than the reference by more than 3%


def grouped(cells, *keys):
    """Cells by the values of these keys, in their order."""
    groups = {}
    for cell in cells:
        groups.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    return groups


def us(value):
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def sms(side):
    """SMs, and copies where there are some: zero kernels are copy engines alone."""
    return f"{side['sms']}" + (f"+{side['copies']}c" if side["copies"] else "")


def cell_line(cell):
    a, b = cell["a"], cell["b"]
    cpu = f"{a['cpuUs']:.2f} / {b['cpuUs']:.2f}" if a["cpuUs"] is not None else ""
    wrong = "" if a["wrong"] + b["wrong"] == 0 else f" WRONG {a['wrong']:.0f} / {b['wrong']:.0f}"
    return (f"| {size_text(cell['bytes'])} | {us(a['medianUs'])} | {us(a['p99Us'])} | {us(b['medianUs'])} | {us(b['p99Us'])} | "
            f"{cell['ratio']:.2f}{wrong} | {a['busGBps']:.1f} | {b['busGBps']:.1f} | {sms(a)} | {sms(b)} | {cpu} |")


def tables(rows):
    own, other = rows.names()
    parts = []
    for (op, mode, kind, redop, ctas), cells in grouped(rows.cells, "op", "mode", "type", "redop", "maxCtas").items():
        words = [op, kind, *([redop] if redop else []), mode, f"{cells[0]['ranks']} GPUs", *(["in place"] if cells[0]["inPlace"] else []),
                 *([cells[0]["buffers"] + " buffers"] if cells[0]["buffers"] != "plain" else []), *([f"at most {ctas} CTAs"] if ctas else [])]
        parts.append(f"**{', '.join(words)}**\n\n"
                     f"| size | {own} us | p99 | {other} us | p99 | times faster | {own} GB/s | {other} GB/s | {own} SMs | {other} SMs | CPU us |\n"
                     + "|" + "---:|" * 11 + "\n" + "\n".join(map(cell_line, cells)))
    return "\n\n".join(parts)


def matrix(rows, mode):
    """How many times faster, sizes down, operations across."""
    cells = [cell for cell in rows.cells if cell["mode"] == mode]
    ops = list(dict.fromkeys(cell["op"] for cell in cells))
    lines = [f"| {mode} | " + " | ".join(ops) + " |", "|---:|" + "---:|" * len(ops)]
    for size in sorted({cell["bytes"] for cell in cells}):
        found = {cell["op"]: cell for cell in cells if cell["bytes"] == size}
        lines.append(f"| {size_text(size)} | " + " | ".join(f"{found[op]['ratio']:.2f}" if op in found else "" for op in ops) + " |")
    return "\n".join(lines)


def mean_ratio(cells):
    return math.exp(sum(math.log(cell["ratio"]) for cell in cells) / len(cells))


def summary(rows):
    lines = []
    for (op, mode), cells in grouped(rows.cells, "op", "mode").items():
        worst = min(cells, key=lambda cell: cell["ratio"])
        worse = sum(cell["ratio"] < WORSE for cell in cells)
        lines.append(f"{op}, {mode}: {mean_ratio(cells):.2f} times faster in the geometric mean of {len(cells)} sizes, at least "
                     f"{worst['ratio']:.2f} ({size_text(worst['bytes'])}); {worse} worse by more than 3%")
    for memory in rows.memory:
        words = [f"{name} {memory[side]['warmBytes'] / 2**20:.0f} MiB ({memory[side]['connectedBytes'] / 2**20:.0f} by the communicator alone)"
                 for side, name in zip(("a", "b"), rows.names())]
        lines.append(f"memory of a GPU{', at most %d CTAs' % memory['maxCtas'] if memory['maxCtas'] else ''}: {', '.join(words)}")
    return "\n".join(lines)


def setting(rows):
    """On what it was measured."""
    header = rows.header
    sides = [f"{side['name']} is {side['version']}" + (f" with {' '.join(f'{k}={v}' for k, v in side['env'].items())}" if side["env"] else "")
             for side in (header.get("a"), header.get("b")) if side]
    return (f"{header.get('ranks')} x {header.get('device')}, one process each; {header.get('rounds')} blocks of each library in turns, medians "
            f"and 99th percentiles of the slowest rank; every element checked before and after; {'; '.join(sides)}. SMs: thread blocks of "
            "the call, counted in a capture of it (with NCCL_GRAPH_REGISTER=0 where it is eager), at most those of the device; 'c' copies "
            "beside them. CPU us: of an eager call, both.")
