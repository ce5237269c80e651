"""`tutti bench` as one process a rank: bench_test.py PATH-OF-TUTTI PATH-OF-LIAR."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

LIAR = sys.argv.pop()
TUTTI = sys.argv.pop()
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv"]
MARKS = ("NCCL_", "TUTTI_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(MARKS)}
CLEAN.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
TUTTI_RUN = [TUTTI, "run", "-n", "3", "--no-prefix", "--"]


class Several(unittest.TestCase):
    """What the test cases share."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.rows = os.path.join(folder.name, "rows.json")

    def bench(self, launcher, *arguments, environment=None, code=0):
        """Rows, stdout, stderr."""
        command = [*launcher, TUTTI, "bench", *arguments, "--timeout", "60", "--json", self.rows]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**CLEAN, **(environment or {})}, check=False)
        self.assertEqual(done.returncode, code, f"{command}\n{done.stdout}\n{done.stderr}")
        with open(self.rows, encoding="utf-8") as file:
            return json.load(file), done.stdout, done.stderr


class OneHost(Several):
    def check_launcher(self, name, launcher):
        rows, out, err = self.bench(launcher, "-e", "256K", "-f", "32", "-n", "3")
        self.assertEqual({(row["op"], row["ranks"], row["wrong"]) for row in rows}, {("all_reduce", 3, 0)}, err)
        self.assertIn(f"3 ranks (3 processes, by {name})", out)
        self.assertEqual(out.count("wrong elements: 0"), 1, "rank 0 alone prints")

    def test_tutti_run(self):
        self.check_launcher("tutti run", TUTTI_RUN)

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "Open MPI is not installed")
    def test_open_mpi(self):
        self.check_launcher("Open MPI", ["mpirun.openmpi", "-n", "3"])

    @unittest.skipUnless(shutil.which("mpirun.mpich"), "MPICH is not installed")
    def test_mpich(self):
        self.check_launcher("MPICH", ["mpirun.mpich", "-n", "3"])

    def test_every_operation(self):
        for op in OPS:
            rows, _, err = self.bench(TUTTI_RUN, op, "-b", "8", "-e", "300K", "-f", "37", "-n", "2", "-r", "2")
            self.assertTrue(rows)
            self.assertEqual({(row["ranks"], row["wrong"]) for row in rows}, {(3, 0)}, err)

    def test_threads_buffers_and_fresh_inputs(self):
        launcher = [TUTTI, "run", "-n", "2", "--"]
        for arguments in (["--threads", "3"], ["--threads", "2", "--rewrite"], ["--buffers", "ncclmem"], ["-d", "all", "-o", "all", "-b", "5K"]):
            rows, _, err = self.bench(launcher, "reduce_scatter", "-e", "6K", "-n", "2", *arguments)
            ranks = 2 * int(arguments[1]) if arguments[0] == "--threads" else 2
            self.assertEqual({(row["ranks"], row["wrong"]) for row in rows}, {(ranks, 0)}, err)

    def test_one_benchmark_after_another(self):
        script = f"{TUTTI} bench all_reduce -e 8 -n 1 && {TUTTI} bench broadcast -e 8 -n 1"
        done = subprocess.run([TUTTI, "run", "-n", "3", "--", "sh", "-c", script], capture_output=True, text=True, timeout=100, env=CLEAN, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("wrong elements: 0"), 2)

    def test_a_wrong_element_on_one_rank_is_everybodys_exit_code(self):
        script = f"{TUTTI} bench all_reduce -b 1K -e 1K -n 1 --inplace 0; echo code $?"
        done = subprocess.run([TUTTI, "run", "-n", "3", "--", "sh", "-c", script], capture_output=True, text=True, timeout=100, check=False,
                              env={**CLEAN, "LD_PRELOAD": LIAR})
        for rank in range(3):
            self.assertIn(f"[{rank}] code 1\n", done.stdout + done.stderr)
        self.assertIn("wrong elements: 2", done.stdout)  # once before and once after the timed calls
        self.assertRegex(done.stderr, r"\[1\] tutti: wrong: all_reduce float sum, 1 KiB: rank 1, element 255 ")

    def test_a_rank_that_dies_ends_the_job(self):
        script = "[ $RANK = 1 ] && { sleep 2 && kill -9 $$ & }; exec \"$@\""
        job = subprocess.Popen([TUTTI, "run", "-n", "3", "--grace", "30", "--", "sh", "-c", script, "sh", TUTTI, "bench", "all_reduce", "-n", "1000000",
                                "--timeout", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=CLEAN)
        began = time.monotonic()
        _, err = job.communicate(timeout=100)
        self.assertEqual(job.returncode, 128 + signal.SIGKILL, err)
        self.assertIn("rank 1 was killed by signal 9", err)
        self.assertLess(time.monotonic() - began, 25)

    def test_a_failure_of_the_library_is_an_exit_code(self):
        done = subprocess.run([TUTTI, "run", "-n", "2", "--", TUTTI, "bench", "all_reduce", "-e", "8"], capture_output=True, text=True, timeout=100,
                              env={**CLEAN, "NCCL_ALGO": "nonsense"}, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("nonsense", done.stderr)


@unittest.skipUnless(os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0,
                     "network namespaces need root")
class SeveralHosts(Several):
    WORK = ["-e", "64K", "-f", "32", "-n", "3"]

    def test_it_starts_hosts_itself(self):
        for nodes, ranks, threads in ((2, 4, 1), (2, 4, 2), (3, 5, 1)):
            places = ["--nodes", str(nodes), "--ranks", str(ranks), "--threads", str(threads), "--devices", "host"]
            rows, out, err = self.bench([], *places, *self.WORK)
            self.assertEqual({(row["ranks"], row["wrong"]) for row in rows}, {(ranks, 0)}, err)
            self.assertIn(f"{ranks // threads} processes", out)

    def test_other_launchers_on_several_hosts(self):
        unset = "export R=$RANK; unset TUTTI_RUN_FD TUTTI_RUN_RANK TUTTI_RUN_NODES"
        for variables in ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", "NCCL_COMM_ID=$MASTER_ADDR:23457 TUTTI_JOB_SECRET=s LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"):
            launcher = [TUTTI, "run", "-n", "2", "--nodes", "2", "--no-prefix", "--", "sh", "-c", f'{unset}; exec env {variables} "$@"', "sh"]
            rows, out, err = self.bench(launcher, "all_reduce", *self.WORK)
            self.assertEqual({(row["ranks"], row["wrong"]) for row in rows}, {(2, 0)}, err)
            self.assertIn("by torchrun", out)

    def test_nothing_is_left_after_an_interrupt(self):
        before = os.listdir("/sys/class/net")
        job = subprocess.Popen([TUTTI, "bench", "all_reduce", "--nodes", "2", "--ranks", "2", "-n", "1000000", "--timeout", "77.125"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=CLEAN)
        while "out-of-place" not in job.stdout.readline():
            self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=60)
        self.assertEqual(job.returncode, 128 + signal.SIGINT)
        left = subprocess.run(["grep", "-l", "-a", "77.125", *(f"/proc/{pid}/cmdline" for pid in os.listdir("/proc") if pid.isdigit())],
                              capture_output=True, text=True, check=False).stdout.split()
        self.assertEqual([path for path in left if os.path.exists(path)], [])
        self.assertEqual(os.listdir("/sys/class/net"), before)


if __name__ == "__main__":
    unittest.main()
