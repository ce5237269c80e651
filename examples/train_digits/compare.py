"""Trains alone and with several ranks, and compares: the loss curves must be the same up to rounding.

Rounding differs because a sum over a batch is made in another order, of the shares' sums; at each step by some 1e-7 of the value, which
later steps carry on. Of the loss it stays below 1e-6 over 300 steps here; TOLERANCE allows for other machines. A rank whose share was lost,
or counted twice, would show in the first step already.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

TOLERANCE = 1e-5
LEAST_ACCURACY = 0.93
TRAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py")


def losses_of(command, path):
    subprocess.run([*command, "--json", path], check=True)
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default="libnccl.so.2")
    parser.add_argument("--tutti", default="tutti", help="the tutti command")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--processes", type=int, default=4)
    how.add_argument("--threads", type=int)
    options = parser.parse_args()
    train = [sys.executable, TRAIN, "--library", options.library]
    several = [*train, "--threads", str(options.threads)]
    if not options.threads:
        several = [options.tutti, "run", "-n", str(options.processes), "--timeout", "100", "--", *train]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "losses.json")
        one = losses_of(train, path)
        many = losses_of(several, path)
    if many["ranks"] != (options.threads or options.processes):
        raise SystemExit(f"{many['ranks']} ranks took part")
    difference = max(abs(a - b) / a for a, b in zip(one["losses"], many["losses"], strict=True))
    print(f"the loss curves differ by at most {difference:.1e} of the loss; {TOLERANCE:.0e} is allowed")
    if difference > TOLERANCE:
        raise SystemExit("the loss curves differ")
    for result in (one, many):
        if result["accuracy"] < LEAST_ACCURACY or result["losses"][-1] > 0.2 * result["losses"][0]:
            raise SystemExit("the network has not learnt")


if __name__ == "__main__":
    main()
