"""Runs `tutti run` as a user does: run_test.py PATH-OF-TUTTI."""
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TUTTI = sys.argv.pop()
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TUTTI_", "OMPI_", "PMI", "SLURM_"))}
SHELL = ["sh", "-c"]


def run(*arguments, **options):
    """Exit code, stdout, stderr."""
    done = subprocess.run([TUTTI, "run", *arguments], capture_output=True, text=True, timeout=60, env=CLEAN, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def processes(mark):
    """The processes whose command line holds `mark`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in words and state not in "ZX" and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


def started(*arguments):
    return subprocess.Popen([TUTTI, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=CLEAN)


class Output(unittest.TestCase):
    def test_lines_carry_their_rank_and_their_stream(self):
        code, out, err = run("-n", "3", "--", *SHELL, "echo out $RANK; echo err $RANK >&2")
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()), [f"[{r}] out {r}" for r in range(3)])
        self.assertEqual(sorted(err.splitlines()), [f"[{r}] err {r}" for r in range(3)])

    def test_prefixes_align_and_can_be_left_out(self):
        code, out, _ = run("-n", "11", "--", *SHELL, "echo $RANK")
        self.assertEqual((code, len(out.splitlines())), (0, 11))
        self.assertIn("[ 3] 3\n", out)
        self.assertIn("[10] 10\n", out)
        self.assertEqual(run("-n", "1", "--no-prefix", "--", "printf", "a\\nb")[1], "a\nb\n")

    def test_lines_are_whole_however_they_were_written(self):
        script = "for i in 1 2 3 4 5 6 7 8 9 10; do printf 'begin'; sleep 0.01; printf -- '-%s-' $RANK; printf 'end\\n'; done"
        code, out, _ = run("-n", "4", "--", *SHELL, script)
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()), sorted([f"[{r}] begin-{r}-end" for r in range(4)] * 10))

    def test_much_output_arrives_complete_and_in_order(self):
        code, out, _ = run("-n", "3", "--", *SHELL, "seq 1 20000")
        self.assertEqual(code, 0)
        for rank in range(3):
            mine = [line[4:] for line in out.splitlines() if line.startswith(f"[{rank}]")]
            self.assertEqual(mine, [str(i) for i in range(1, 20001)])

    def test_a_slow_reader_loses_nothing(self):
        job = started("-n", "2", "--", *SHELL, "seq 1 100000")
        time.sleep(0.5)  # more than the pipe and the buffers hold is ready long before
        out, _ = job.communicate(timeout=60)
        self.assertEqual((job.returncode, len(out.splitlines())), (0, 200000))

    def test_a_reader_that_goes_ends_the_job(self):
        job = started("-n", "2", "--", "yes")
        job.stdout.readline()
        job.stdout.close()
        self.assertEqual(job.wait(timeout=30), 128 + signal.SIGPIPE)
        job.stderr.close()

    def test_nothing_is_read_from_the_terminal(self):
        code, out, _ = run("-n", "2", "--", "cat", input="text")
        self.assertEqual((code, out), (0, ""))


class Environment(unittest.TestCase):
    def test_ranks_find_themselves(self):
        code, out, _ = run("-n", "3", "--", *SHELL, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port}")
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()), [f"[{r}] {r} 3 {r} 3 127.0.0.1 port" for r in range(3)])

    def test_words_after_the_dashes_belong_to_the_program(self):
        self.assertEqual(run("-n", "1", "--", "printf", "%s,", "-n", "--", "--help", "a b", "")[1], "[0] -n,--,--help,a b,,\n")
        self.assertEqual(run("-n", "1", "printf", "%s,", "a", "--", "-b")[1], "[0] a,--,-b,\n")

    def test_binding(self):
        cores = sorted(os.sched_getaffinity(0))
        script = "sed -n 's/^Cpus_allowed_list:\\t//p' /proc/self/status"
        code, out, _ = run("-n", "5", "--bind", "--", *SHELL, script)
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()), sorted(f"[{r}] {cores[r % len(cores)]}" for r in range(5)))

    def test_ranks_inherit_limits_and_signals_as_they_were(self):
        script = "ulimit -n; grep -E '^Sig(Blk|Ign)' /proc/self/status"
        plain = subprocess.run([*SHELL, script], capture_output=True, text=True, check=True, env=CLEAN, restore_signals=True).stdout
        self.assertEqual(run("-n", "1", "--no-prefix", "--", *SHELL, script)[1], plain)

    def test_no_descriptor_leaks_into_a_rank(self):
        _, out, _ = run("-n", "4", "--no-prefix", "--", *SHELL, "ls /proc/self/fd | wc -l; ls -l /proc/self/fd | grep -c socket")
        # Three standard streams, the post, and the one that ls opens.
        self.assertEqual(sorted(out.split()), ["1"] * 4 + ["5"] * 4)


class Ends(unittest.TestCase):
    def test_exit_codes(self):
        self.assertEqual(run("-n", "3", "--", "true")[0], 0)
        code, _, err = run("-n", "3", "--", *SHELL, "[ $RANK = 1 ] && exit 7; sleep 1000")
        self.assertEqual(code, 7)
        self.assertIn("rank 1 ended with exit code 7", err)
        code, _, err = run("-n", "2", "--", *SHELL, "[ $RANK = 0 ] && kill -SEGV $$; sleep 1000")
        self.assertEqual(code, 128 + signal.SIGSEGV)
        self.assertRegex(err, r"rank 0 was killed by signal 11 \(Segmentation fault\)")

    def test_the_first_failure_counts(self):
        code, _, err = run("-n", "2", "--", *SHELL, "trap 'exit 9' TERM; [ $RANK = 1 ] && { sleep 0.2; exit 5; }; while :; do sleep 0.05; done")
        self.assertEqual((code, err.count("ended with")), (5, 1), err)

    def test_a_program_that_cannot_start(self):
        for program, why in (("/no/such/program", "No such file"), ("/etc/passwd", "Permission denied"), ("no-such-program", "No such file")):
            code, out, err = run("-n", "4", "--", program)
            self.assertEqual((code, out), (127, ""))
            self.assertIn(program, err)
            self.assertIn(why, err)
            self.assertEqual(len(err.splitlines()), 1)

    def test_bad_arguments(self):
        for arguments, word in ((("-n", "0", "true"), "--ranks"), (("-n", "2"), "PROGRAM"), (("-n", "2", "--"), "PROGRAM"), (("true",), "--ranks"),
                                (("-n", "2", "--bnid", "true"), "--bnid"), (("-n", "2", "--nodes", "3", "true"), "--nodes"),
                                (("-n", "2", "--timeout", "x", "true"), "--timeout")):
            code, out, err = run(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertIn(word, err)

    def test_a_timeout_ends_all(self):
        began = time.monotonic()
        code, _, err = run("-n", "2", "--timeout", "0.5", "--", "sleep", "1000.125")
        self.assertEqual(code, 124)
        self.assertIn("--timeout", err)
        self.assertLess(time.monotonic() - began, 4)
        self.assertEqual(processes("1000.125"), [])

    def test_those_that_ignore_the_polite_signal_are_killed(self):
        script = """trap '' TERM; : > ready$RANK
            if [ $RANK = 1 ]; then until [ -e ready0 ] && [ -e ready2 ]; do sleep 0.01; done; exit 3; fi
            while :; do sleep 1000.25; done"""
        with tempfile.TemporaryDirectory() as folder:
            code, _, err = run("-n", "3", "--grace", "0.3", "--", *SHELL, script, cwd=folder)
        self.assertEqual(code, 3)
        self.assertIn("ranks 0, 2 have not ended within 0.3 s", err)
        self.assertEqual(processes("1000.25"), [])

    def test_the_grace_lets_a_rank_clean_up(self):
        code, out, _ = run("-n", "2", "--", *SHELL, "trap 'echo cleaned up; exit 0' TERM; [ $RANK = 1 ] && { sleep 0.3; exit 3; }; while :; do sleep 0.05; done")
        self.assertEqual((code, out), (3, "[0] cleaned up\n"))

    def test_what_ranks_leave_behind_ends_with_the_job(self):
        code, out, _ = run("-n", "2", "--", *SHELL, "setsid sleep 1000.5 & (sleep 1000.5 &) ; echo done")
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()), ["[0] done", "[1] done"])
        self.assertEqual(processes("1000.5"), [])

    def test_more_ranks_than_descriptors(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        code, out, err = run("-n", "100", "--", "true", preexec_fn=few)
        self.assertEqual((code, out), (125, ""))
        self.assertIn("100 ranks need", err)
        self.assertIn("64 are allowed", err)

    def test_hundreds_of_ranks_under_a_low_soft_limit(self):
        def soft():
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        code, out, err = run("-n", "400", "--", *SHELL, "echo $RANK; ulimit -n", preexec_fn=soft)
        self.assertEqual(code, 0, err)
        self.assertEqual(len(out.splitlines()), 800)
        self.assertEqual(out.count("] 256\n"), 401)  # rank 256 says so twice


class Signals(unittest.TestCase):
    SLEEPERS = "setsid sleep {0} & sleep {0} & wait"

    def check_gone(self, mark):
        self.assertTrue(wait_until(lambda: not processes(mark)), f"left behind: {processes(mark)}")

    def start_sleepers(self, mark, ranks=3):
        job = started("-n", str(ranks), "--", *SHELL, self.SLEEPERS.format(mark))
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in processes(mark)])
        # A shell and two sleepers for each rank, and the two processes of tutti run, which name them too.
        self.assertTrue(wait_until(lambda: len(processes(mark)) == 3 * ranks + 2))
        return job

    def finish(self, job):
        out = job.communicate(timeout=30)
        return (job.returncode, *out)

    def test_signals_are_forwarded_and_give_the_exit_code(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            job = started("-n", "2", "--", *SHELL, f"trap 'echo got {number.name}; exit 0' {number.name[3:]}; echo up; while :; do sleep 0.05; done")
            job.stdout.readline()
            job.stdout.readline()
            job.send_signal(number)
            code, out, _ = self.finish(job)
            self.assertEqual(code, 128 + number)
            self.assertEqual(sorted(out.splitlines()), [f"[0] got {number.name}", f"[1] got {number.name}"])

    def test_those_that_ignore_an_interrupt_are_asked_to_end(self):
        job = started("-n", "2", "--grace", "2", "--", *SHELL, "trap '' INT; trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        self.assertIn("up", job.stdout.readline() + job.stdout.readline())
        job.send_signal(signal.SIGINT)
        code, out, _ = self.finish(job)
        self.assertEqual((code, out.count("asked")), (128 + signal.SIGINT, 2))

    def test_nobody_waits_for_the_id_of_a_rank_that_has_ended(self):
        script = f'[ $RANK = 0 ] && exit 0; exec {TUTTI} bench all_reduce -e 8 --timeout 50'
        begin = time.monotonic()
        code, _, err = run("-n", "2", "--", *SHELL, script)
        self.assertNotEqual(code, 0)
        self.assertIn("rank 0 has ended", err)
        self.assertLess(time.monotonic() - begin, 20)

    def test_user_signals_pass_and_end_nothing(self):
        job = started("-n", "2", "--", *SHELL, "trap 'echo usr1; exit 0' USR1; echo up; while :; do sleep 0.05; done")
        job.stdout.readline()
        job.stdout.readline()
        job.send_signal(signal.SIGUSR1)
        code, out, _ = self.finish(job)
        self.assertEqual((code, sorted(out.splitlines())), (0, ["[0] usr1", "[1] usr1"]))

    def test_a_second_signal_kills_at_once(self):
        job = started("-n", "2", "--grace", "1000", "--", *SHELL, "trap '' INT; echo up; while :; do sleep 0.05; done")
        job.stdout.readline()
        job.stdout.readline()
        job.send_signal(signal.SIGINT)
        time.sleep(0.2)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(job)[0], 128 + signal.SIGINT)

    def test_grandchildren_in_sessions_of_their_own_end_too(self):
        job = self.start_sleepers("1001.125")
        job.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(job)[0], 128 + signal.SIGTERM)
        self.assertEqual(processes("1001.125"), [])

    def test_nothing_is_left_after_kill_9(self):
        job = self.start_sleepers("1001.25")
        job.kill()
        self.check_gone("1001.25")
        self.finish(job)

    def test_nothing_is_left_after_kill_9_of_the_keeper(self):
        job = self.start_sleepers("1001.5")
        with open(f"/proc/{job.pid}/task/{job.pid}/stat", encoding="utf-8"):
            keepers = [pid for pid in processes("1001.5") if parent_of(pid) == job.pid]
        self.assertEqual(len(keepers), 1)
        os.kill(keepers[0], signal.SIGKILL)
        code, _, err = self.finish(job)
        self.assertEqual(code, 128 + signal.SIGKILL)
        self.assertIn("killing the ranks", err)
        self.assertEqual(processes("1001.5"), [])

    def test_ranks_die_even_when_both_processes_are_killed(self):
        mark = "1001.75"
        job = started("-n", "3", "--", "sleep", mark)
        self.assertTrue(wait_until(lambda: len(processes(mark)) == 5))
        keeper = [pid for pid in processes(mark) if parent_of(pid) == job.pid][0]
        os.kill(job.pid, signal.SIGSTOP)
        os.kill(keeper, signal.SIGKILL)
        os.kill(job.pid, signal.SIGKILL)
        self.check_gone(mark)
        self.finish(job)


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@unittest.skipUnless(os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0,
                     "network namespaces need root")
class Nodes(unittest.TestCase):
    PROBE = """
import os, socket
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server((host, port), backlog=64) as server:
        peers = [server.accept() for _ in range(ranks - 1)]
        for peer, address in peers:
            print(address[0], peer.recv(99).decode(), flush=True)
else:
    import time
    for _ in range(500):
        try:
            with socket.create_connection((host, port), timeout=5) as peer:
                peer.sendall(b"%d %d/%d" % (rank, int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
"""

    def test_ranks_of_several_nodes_reach_each_other(self):
        for nodes, ranks in ((2, 5), (3, 4)):
            code, out, err = run("-n", str(ranks), "--nodes", str(nodes), "--no-prefix", "--", sys.executable, "-c", self.PROBE)
            self.assertEqual(code, 0, err)
            lines = sorted(out.splitlines(), key=lambda line: int(line.split()[1]))
            if nodes == 2:
                self.assertEqual(lines, ["10.213.0.1 1 1/3", "10.213.0.1 2 2/3", "10.213.0.2 3 0/2", "10.213.0.2 4 1/2"])
            else:
                self.assertEqual(lines, ["10.213.0.1 1 1/2", "10.213.0.2 2 0/1", "10.213.0.3 3 0/1"])

    def test_nothing_of_them_is_left(self):
        before = os.listdir("/sys/class/net")
        job = started("-n", "2", "--nodes", "2", "--", *SHELL, "echo $(readlink /proc/self/ns/net); sleep 1002.5")
        networks = {job.stdout.readline().split()[1] for _ in range(2)}
        self.assertEqual(len(networks | {os.readlink("/proc/self/ns/net")}), 3)
        self.assertEqual(os.listdir("/sys/class/net"), before)
        job.kill()
        self.assertTrue(wait_until(lambda: not processes("1002.5")))
        job.communicate(timeout=30)
        self.assertEqual(os.listdir("/sys/class/net"), before)

    def test_without_root_it_is_told(self):
        setpriv = shutil.which("setpriv")
        if setpriv is None or not os.access(TUTTI, os.X_OK):
            self.skipTest("setpriv is missing")
        with tempfile.TemporaryDirectory() as folder:  # others may not look into root's home, where the build may be
            os.chmod(folder, 0o755)
            lib = os.path.join(os.path.dirname(os.path.dirname(TUTTI)), "lib", "libnccl.so.2")
            for path, below in ((TUTTI, "bin"), (lib, "lib")):
                os.mkdir(os.path.join(folder, below), 0o755)
                shutil.copy(path, os.path.join(folder, below))
            tutti = os.path.join(folder, "bin", os.path.basename(TUTTI))
            command = [setpriv, "--reuid", "65534", "--clear-groups", tutti, "run", "-n", "2", "--nodes", "2", "--", "true"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=CLEAN, check=False)
        self.assertEqual(done.returncode, 125, done.stderr)
        self.assertIn("needs root", done.stderr)


if __name__ == "__main__":
    unittest.main()
