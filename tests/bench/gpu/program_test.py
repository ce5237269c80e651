"""bench_gpu on ranks of the host: program_test.py BENCH_GPU LIBRARY LIAR. The liar's all-reduces of floats are wrong where RANK is 1."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LIAR = sys.argv.pop()
LIBRARY = sys.argv.pop()
BENCH = sys.argv.pop()
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TUTTI_", "RANK"))} | {"TUTTI_DEVICE": "host"}
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv"]
SMALL = ["--rotate", "64K", "--block-us", "200"]


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.rows = self.folder / "rows.json"
        self.copy = self.folder / "copy.so.2"
        shutil.copyfile(LIBRARY, self.copy)

    def bench(self, *words, code=0, peer=True, library=LIBRARY, **environment):
        """What it printed, and its rows."""
        command = [BENCH, *map(str, words), "--a", library, *(["--b", self.copy] if peer else []), "--host", "--json", self.rows]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=CLEAN | environment, check=False)
        self.assertEqual(done.returncode, code, f"{command}\n{done.stdout}\n{done.stderr}")
        lines = [json.loads(line) for line in self.rows.read_text(encoding="utf-8").splitlines()] if self.rows.exists() else []
        return done.stdout + done.stderr, lines

    def test_every_operation_in_and_out_of_place_at_odd_counts(self):
        for words in ([], ["--in-place"]):
            for ranks, root in ((2, 1), (3, 2)):
                _, lines = self.bench("compare", "all", "-n", ranks, "--root", root, "-b", 1, "-e", 7001, "-f", 83, "-r", 3, *SMALL, *words)
                rows = [line for line in lines if "op" in line]
                self.assertEqual(list(dict.fromkeys(row["op"] for row in rows)), OPS)
                self.assertEqual(sum(row[side]["wrong"] for row in rows for side in "ab"), 0)
                self.assertTrue(all(row[side]["medianUs"] > 0 and row[side]["p99Us"] >= row[side]["medianUs"] for row in rows for side in "ab"))
                self.assertEqual(lines[-1], {"complete": 1.0})
                self.assertIn("tutti", lines[0]["header"]["a"]["version"])

    def test_every_type_and_operator(self):
        _, lines = self.bench("compare", "all_reduce", "reduce_scatter", "-n", 2, "-b", 500, "-e", 500, "-d", "all", "-o", "all", "-r", 2, *SMALL)
        rows = [line for line in lines if "op" in line]
        self.assertEqual(len(rows), 2 * 12 * 5)
        self.assertEqual(sum(row[side]["wrong"] for row in rows for side in "ab"), 0)

    def test_registered_memory_of_either(self):
        for owner in "ab":
            _, lines = self.bench("compare", "all_gather", "-n", 2, "-b", "4K", "-e", "4K", "-r", 2, "--buffers", "registered", "--memory-of", owner,
                                  *SMALL)
            self.assertEqual([line["buffers"] for line in lines if "op" in line], ["registered"])

    def test_wrong_results_are_found_and_told(self):
        text, lines = self.bench("compare", "all_reduce", "-n", 2, "-b", 4000, "-e", 4000, "-r", 2, "--rotate", "8K", "--a-name", "liar", code=1,
                                 library=LIAR, RANK="1")
        row = next(line for line in lines if "op" in line)
        # One element a slot and rank, before and after the rounds; the other library is right.
        self.assertEqual((row["a"]["wrong"], row["b"]["wrong"]), (2 * 2 * row["slots"], 0), text)
        self.assertIn("wrong: liar, all_reduce float sum, 3.91 KiB, rank 0, slot 0: 1 of 1000 elements, the first is 999", text)
        self.assertIn("WRONG", text)

    def test_torture_is_right_and_repeats_itself(self):
        for words in (["-n", 1, "-e", 1], ["-n", 2, "-e", "8K"], ["-n", 3, "-e", 5], ["-n", 4, "-e", "8K", "--mixed"]):
            text, _ = self.bench("torture", *words, "--steps", 70, "--seed", 3, "--slow-us", 300, peer=False)
            self.assertRegex(text, r"torture: seed 3: 70 steps, \d+ calls, every element right")
            self.assertEqual(text, self.bench("torture", *words, "--steps", 70, "--seed", 3, "--slow-us", 300, peer=False)[0])

    def test_torture_names_the_step_of_a_wrong_element(self):
        text, _ = self.bench("torture", "all_reduce", "-d", "float", "-n", 2, "--steps", 70, "-e", "8K", "--seed", 4, peer=False, code=1,
                             library=LIAR, RANK="1")
        self.assertRegex(text, r"wrong: seed 4, step 0, call \d, all_reduce float \w+, .*rank \d of \d: \d+ of \d+ elements")
        self.assertRegex(text, r"torture: seed 4, step 0: \d+ wrong elements")

    def test_check_torture_tells_seed_and_step(self):
        build = self.folder / "build"
        for place, target in (("lib/libnccl.so.2", LIAR), ("bin/bench_gpu", BENCH)):
            (build / place).parent.mkdir(parents=True)
            (build / place).symlink_to(target)
        check = pathlib.Path(__file__).resolve().parents[2] / "gpu" / "check"
        for environment, code, words in (("RANK=0", 0, "every element right"), ("RANK=1", 1, r"FAIL torture/small-3: .*torture: seed 3, step \d+: ")):
            done = subprocess.run([sys.executable, str(check), "torture", "--host", "--build", str(build), "--count", "1", "--seed", "3", "--env",
                                   environment], capture_output=True, text=True, timeout=100, check=False)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertRegex(done.stdout, words)

    def test_life(self):
        text, lines = self.bench("life", "-n", 2, "-e", "64K", peer=False)
        self.assertGreater(lines[-1]["readyMs"], lines[-1]["connectMs"])
        self.assertIn("allToAllBytes", text)
        self.assertIn("besideBytes", text)

    def test_overlap(self):
        _, lines = self.bench("overlap", "all_reduce", "-n", 2, "-b", "4K", "-e", "4K", "-r", 2, *SMALL)
        rows = [line for line in lines if "overlap" in line]
        self.assertEqual([row["library"] for row in rows], ["tutti", "NCCL"])
        for row in rows:
            self.assertEqual(row["products"] % 8, 0)  # every shape as often

    @staticmethod
    def ranks_of(process, count):
        """The process ids of its ranks, once all are there."""
        children, ranks = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children"), []
        while len(ranks) < count:
            ranks = [int(pid) for pid in children.read_text(encoding="ascii").split()]
            time.sleep(0.05)
        return ranks

    def test_a_rank_that_hangs_is_named_and_all_end(self):
        # A rank that is stopped makes no step; the others wait for it.
        command = [BENCH, "torture", "--a", LIBRARY, "--host", "-n", "3", "--seconds", "100", "--limit", "3", "-e", "4K"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN) as process:
            ranks = self.ranks_of(process, 3)
            time.sleep(1)
            os.kill(ranks[1], signal.SIGSTOP)
            text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, text)
        self.assertIn("no step for 3 s", text)
        self.assertRegex(text, r"rank 1, step \d+: (seed 1, \d calls|connect and split|destroy)")
        for rank in ranks:
            self.assertFalse(pathlib.Path(f"/proc/{rank}").exists())

    def test_a_rank_that_dies_ends_all(self):
        command = [BENCH, "torture", "--a", LIBRARY, "--host", "-n", "3", "--seconds", "100", "-e", "4K"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=CLEAN) as process:
            ranks = self.ranks_of(process, 3)
            time.sleep(0.5)
            os.kill(ranks[2], signal.SIGKILL)
            text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 2, text)
        self.assertIn("rank 2 was killed by signal 9", text)

    def test_variables_reach_one_library_alone(self):
        text, _ = self.bench("compare", "all_reduce", "-n", 2, "-b", 8, "-e", 8, "-r", 1, "--a-env", "TUTTI_ALGO=nonsense", *SMALL, code=2)
        self.assertIn("nonsense", text)
        self.assertIn("rank 0: tutti", text)
        text, _ = self.bench("compare", "all_reduce", "-n", 2, "-b", 8, "-e", 8, "-r", 1, "--b-env", "TUTTI_ALGO=nonsense", *SMALL, code=2)
        self.assertIn("rank 0: NCCL", text)

    def test_bad_arguments(self):
        for words in (["compare", "nonsense"], ["compare", "-b", "8K", "-e", "4K"], ["compare", "-n", 3, "-o", "avg"], ["compare", "--root", 2],
                      ["compare", "--rounds", 0], ["compare", "--ctas", 99], ["compare", "-n", 17], ["compare", "--a-env", "NOTHING"]):
            text, _ = self.bench(*words, code=2)
            self.assertTrue(text.strip(), words)
        self.assertIn("are one library to the loader", self.bench("compare", library=self.copy, code=2)[0])
        self.assertIn("no-such", self.bench("life", peer=False, library="/no-such.so", code=2)[0])

    def test_drawings(self):
        self.bench("compare", "all_reduce", "sendrecv", "-n", 2, "-b", 8, "-e", 64, "-r", 2, *SMALL)
        subprocess.run([BENCH, "plot", self.rows, self.folder / "times.svg"], check=True)
        for op in ("all_reduce", "sendrecv"):
            drawing = (self.folder / f"times-{op}.svg").read_text(encoding="utf-8")
            self.assertIn(f"{op}, 2 ranks on host", drawing)
            self.assertIn("NCCL, eager", drawing)
            self.assertEqual(drawing.count("<circle"), 2 * 2 * 4)


if __name__ == "__main__":
    unittest.main()
