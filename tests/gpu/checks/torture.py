"""Random calls, every element compared: bench_gpu torture, one process a GPU, in parts with a seed each.

usage: torture.py --program BENCH_GPU [--gpus N] [--count PARTS] [--seed S] [--seconds S] [--host] [--steps N] [--only TEXT]
A part that fails ends the check: its line has the seed and the step of the first wrong element, or what each rank was doing when all stood still.
`bench_gpu torture --a LIB -n N --seed SEED` repeats it.
"""
import argparse
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from checks import cuda, nccl  # noqa: E402
from checks.report import Report, expect  # noqa: E402

LIMIT_S = 30  # for one step of a rank; it then hangs
# What parts are, in turn: many small calls, all sizes, few large ones; calls of several communicators at once; and buffers in symmetric
# windows, as the library likes to use them, and by blocks or engines wherever they can.
WINDOWS = ["--buffers", "windows"]
PARTS = (("small", ["--to", "32K", "--slow-us", "500"]), ("all", ["--to", "16M"]), ("large", ["--to", "256M", "--slow-us", "20000"]),
         ("mixed", ["--to", "1M", "--mixed"]), ("windows", ["--to", "64M", *WINDOWS]),
         ("blocks", ["--to", "4M", *WINDOWS, "--a-env", "TUTTI_MAPPED=1"]),
         ("engines", ["--to", "64M", *WINDOWS, "--a-env", "TUTTI_COPY_ENGINES=1"]),
         ("zero", ["--to", "16M", *WINDOWS, "--a-env", "NCCL_CTA_POLICY=2"]))
HOST_PARTS = (("small", ["--to", "2K", "--slow-us", "300"]), ("all", ["--to", "64K"]), ("large", ["--to", "1M", "--slow-us", "5000"]),
              ("mixed", ["--to", "16K", "--mixed"]))
PART_S = 60


def run(options, seed, words, seconds):
    command = [options.program, "torture", "--a", nccl.path(), "-n", str(options.gpus), "--seed", str(seed), "--limit", str(LIMIT_S),
               "--seconds", f"{seconds:.0f}", "--steps", str(options.steps), *words, *(["--host"] if options.host else [])]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # it opens the library itself
    if options.host:
        environment["TUTTI_DEVICE"] = "host"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 3 * LIMIT_S, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    sys.stdout.writelines(f"     {line}\n" for line in lines if "NCCL version" in line)
    told = [line for line in lines if line.startswith(("torture:", "wrong:", "bench_gpu:"))]
    expect(done.returncode == 0 and told, f"{' '.join(command)}: exit code {done.returncode}: {'; '.join(told[:8])}")
    return told[-1].removeprefix("torture: ")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--steps", type=int, default=0, help="of a part; 0: as many as it has time for")
    parser.add_argument("--only", default="")
    parser.add_argument("--host", action="store_true")
    options = parser.parse_args()
    report = Report("torture", options.seconds, options.only)
    if not options.host and not cuda.are_enough(options.gpus):
        report.skip("all", f"{cuda.devices()} GPUs for {options.gpus} ranks")
        return report.finish()
    parts = HOST_PARTS if options.host else PARTS
    for number in range(options.count):
        name, words = parts[number % len(parts)]
        seconds = min(PART_S, report.left() - 5)
        if seconds < 5 or not report.run(f"{name}-{options.seed + number}", run, options, options.seed + number, words, seconds):
            break
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
