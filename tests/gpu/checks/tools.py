"""The command `tutti` where the GPUs are: it names them, plans calls of them and measures them.

usage: tools.py --program TUTTI [--gpus N] [--seconds S] [--only NAME] [--host]
What is measured is kept in a folder that goes with the check. --host: the same of ranks without GPUs.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
from checks import cuda  # noqa: E402
from checks.report import Report, Skip, expect  # noqa: E402

CALL = ("all_reduce", "1048576")


class Tutti:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def run(self, *words, codes=(0,), limit_s=60):
        """Exit code and output of a command that ends as it should."""
        environment = dict(os.environ, TUTTI_CACHE_DIR=self.folder)
        done = subprocess.run([self.options.program, *words], env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
        said = done.stdout + done.stderr
        expect(done.returncode in codes, f"tutti {' '.join(words)}: exit code {done.returncode}: {said[-600:]}")
        return done.returncode, said

    def gpus(self):
        return [] if self.options.host else [cuda.Device(ordinal) for ordinal in range(cuda.devices())]


def names(text, words, what):
    for word in words:
        expect(word in text, f"{what} does not name {word}: {text[-600:]}")


def doctor(tutti):
    """The whole check has the library preloaded, so nothing should be wrong."""
    code, said = tutti.run("doctor", codes=(0, 1))
    expect(code == 0, "; ".join(re.findall(r"^WRONG (.*)", said, re.MULTILINE)) or said[-600:])
    names(said, [f"GPU {gpu.ordinal}: {gpu.name()}, sm_" for gpu in tutti.gpus()] or ["ranks compute on CPUs"], "doctor")
    return re.findall(r"\d+ wrong, .*", said)[0]


def topo(tutti):
    _, said = tutti.run("topo")
    gpus = tutti.gpus()
    first = said.splitlines()[0]
    names(first, [f"{len(gpus)} GPUs" if gpus else "host devices"], "the first line of topo")
    names(said, [gpu.bus_id() for gpu in gpus], "topo")
    return first


def explain(tutti):
    """Ranks on host devices, by the library; those of GPUs, by its planner."""
    ranks = tutti.options.gpus
    told = []
    for words in [()] if tutti.options.host else [(), ("--gpus", str(ranks))]:
        _, said = tutti.run("explain", *CALL, *words)
        names(said, [f"all_reduce, 1 MiB, {ranks if words else 4} ranks", "chosen"], "explain")
        told.append(re.search(r"^\w+(?=.* chosen$)", said, re.MULTILINE)[0])
    return " and ".join(told)


def tune(tutti):
    """Measures, keeps what it has found where the model follows that, and explains by it from then on."""
    if tutti.options.host:
        wanted, words = r"\d+ cores, ", ()
    elif len(tutti.gpus()) < tutti.options.gpus or tutti.options.gpus < 2:
        raise Skip(f"it measures two GPUs at least, and as many as there are: {tutti.options.gpus} of {len(tutti.gpus())} are asked for")
    else:
        wanted, words = f"{tutti.options.gpus} GPUs, ", ("--gpus", str(tutti.options.gpus))
    code, said = tutti.run("tune", *words, codes=(0, 1), limit_s=150)
    found = re.search(rf"{wanted}(\d+) calls measured", said)
    expect(found and int(found[1]) > 0, f"tune measures nothing: {said[-600:]}")
    if code == 1:
        expect("nothing is kept" in said, f"tune ended with 1: {said[-600:]}")
        raise Skip(f"{found[0]}, but other programs run: nothing is kept")
    names(said, [f"kept in {tutti.folder}"], "tune")
    _, explained = tutti.run("explain", *CALL, *words)
    names(explained, ["constants: measured"], "explain after tune")
    return found[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="")
    parser.add_argument("--host", action="store_true")
    options = parser.parse_args()
    report = Report("tools", options.seconds, options.only)
    if not options.host and cuda.devices() == 0:
        report.skip("all", "no GPU")
        return report.finish()
    with tempfile.TemporaryDirectory(prefix="tutti_tools_") as folder:
        tutti = Tutti(options, folder)
        for check in (doctor, topo, explain, tune):
            report.run(check.__name__, check, tutti)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
