"""The exchange of a unique id under real launchers: launchers_test.py PATH-OF-TUTTI PATH-OF-PROBE."""
import os
import shutil
import subprocess
import sys
import unittest
import uuid

PROBE = sys.argv.pop()
TUTTI = sys.argv.pop()
MARKS = ("NCCL_", "TUTTI_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(MARKS)}
IS_ROOT = os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0


class Launchers(unittest.TestCase):
    def check(self, outputs, ranks, launcher, rounds=1):
        """All ranks have printed, and all the same id in each round."""
        lines = [line.split() for line in outputs.splitlines() if line]
        self.assertEqual(sorted(int(line[0]) for line in lines), sorted(list(range(ranks)) * rounds), outputs)
        self.assertEqual({(line[1], " ".join(line[2:-1])) for line in lines}, {(str(ranks), launcher)})
        ids = [[line[-1] for line in lines if int(line[0]) == rank] for rank in range(ranks)]
        self.assertEqual(len(set(ids[0])), rounds)
        for other in ids[1:]:
            self.assertEqual(other, ids[0])

    def launch(self, command, environment=None):
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env={**CLEAN, **(environment or {})}, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def by_hand(self, environments, wrappers=None):
        """A process for each environment; their exit codes, and what all of them wrote."""
        jobs = [subprocess.Popen([*(wrappers[i] if wrappers else []), PROBE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**CLEAN, **environment}) for i, environment in enumerate(environments)]
        outputs = [job.communicate(timeout=100) for job in jobs]
        return [job.returncode for job in jobs], "".join(out for out, _ in outputs), "".join(err for _, err in outputs)

    @staticmethod
    def torchrun(rank, ranks, local=True):
        return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank if local else 0), "LOCAL_WORLD_SIZE": str(ranks if local else 1),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": str(uuid.uuid5(uuid.NAMESPACE_OID, str(os.getpid())))}

    def test_tutti_run(self):
        for ranks in (1, 2, 5, 64):
            self.check(self.launch([TUTTI, "run", "-n", str(ranks), "--no-prefix", "--", PROBE]), ranks, "tutti run")

    def test_tutti_run_with_one_program_after_another(self):
        # In real programs the next id comes when all have used the last; a pause does the same here.
        script = f"{PROBE}; sleep 0.3; {PROBE}; sleep 0.3; {PROBE}"
        self.check(self.launch([TUTTI, "run", "-n", "4", "--no-prefix", "--", "sh", "-c", script]), 4, "tutti run", rounds=3)

    def test_another_launcher_inside_is_told(self):
        done = subprocess.run([TUTTI, "run", "-n", "2", "--", "env", "RANK=1", PROBE], capture_output=True, text=True, timeout=60, env=CLEAN, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("TUTTI_RUN_RANK=0", done.stderr)

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "Open MPI is not installed")
    def test_open_mpi(self):
        command = ["mpirun.openmpi", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-n", "4", PROBE]
        self.check(self.launch(command), 4, "Open MPI")
        self.check(self.launch([*command, "3"]), 4, "Open MPI", rounds=3)

    @unittest.skipUnless(shutil.which("mpirun.mpich"), "MPICH is not installed")
    def test_mpich(self):
        for ranks in (1, 4):
            self.check(self.launch(["mpirun.mpich", "-n", str(ranks), PROBE]), ranks, "MPICH")

    @unittest.skipUnless(shutil.which("mpirun.mpich"), "MPICH is not installed")
    def test_mpich_speaks_once_and_the_error_says_so(self):
        done = subprocess.run(["mpirun.mpich", "-n", "2", PROBE, "2"], capture_output=True, text=True, timeout=60, env=CLEAN, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NCCL_COMM_ID", done.stderr)

    def test_variables_of_torchrun(self):
        for local in (True, False):
            codes, out, err = self.by_hand([self.torchrun(rank, 4, local) for rank in (3, 1, 0, 2)])
            self.assertEqual(codes, [0] * 4, err)
            self.check(out, 4, "torchrun")

    def test_two_jobs_of_torchrun_at_once(self):
        environments = [{**self.torchrun(rank, 3, local=False), "MASTER_PORT": port} for rank in range(3) for port in ("29500", "29501")]
        codes, out, err = self.by_hand(environments)
        self.assertEqual(codes, [0] * 6, err)
        lines = out.splitlines()
        self.assertEqual(len({line.split()[-1] for line in lines}), 2)

    def test_a_secret_must_be_the_same(self):
        same = [{**self.torchrun(rank, 2, local=False), "TUTTI_JOB_SECRET": "s3cret"} for rank in range(2)]
        codes, out, err = self.by_hand(same)
        self.assertEqual(codes, [0, 0], err)
        self.check(out, 2, "torchrun")
        other = [{**environment, "PROBE_SECONDS": "1"} for environment in same]
        other[1]["TUTTI_JOB_SECRET"] = "guess"
        codes, _, err = self.by_hand(other)
        self.assertEqual(codes, [3, 3])
        self.assertIn("TUTTI_JOB_SECRET", err)

    def test_variables_of_slurm(self):
        job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "3", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "3",
               "SLURM_STEP_NODELIST": "nowhere"}
        codes, out, err = self.by_hand([{**job, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(3)])
        self.assertEqual(codes, [0] * 3, err)
        self.check(out, 3, "Slurm")

    @unittest.skipUnless(IS_ROOT, "network namespaces need root")
    def test_several_hosts(self):
        # Hosts are namespaces; the variables are those of another launcher. Open MPI's rank 0 is on mpirun's host, node 0.
        torch = "TORCHELASTIC_RUN_ID=x LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"
        uri = "9.0;tcp://192.0.2.77,10.213.0.1:4;tcp6://[fd00::99]:5"
        mpi = f"OMPI_COMM_WORLD_RANK=$R OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=9 " \
              f"'OMPI_MCA_orte_hnp_uri={uri}' 'OMPI_MCA_orte_local_daemon_uri={uri}'"
        unset = "R=$RANK; unset TUTTI_RUN_FD TUTTI_RUN_RANK TUTTI_RUN_NODES"
        for variables, launcher in ((torch, "torchrun"), ("-u RANK -u WORLD_SIZE " + mpi, "Open MPI")):
            script = f"{unset}; exec env {variables} {PROBE}"
            self.check(self.launch([TUTTI, "run", "-n", "3", "--nodes", "3", "--no-prefix", "--", "sh", "-c", script]), 3, launcher)

    @unittest.skipUnless(IS_ROOT, "network namespaces need root")
    def test_the_post_reaches_other_hosts(self):
        self.check(self.launch([TUTTI, "run", "-n", "4", "--nodes", "2", "--no-prefix", "--", PROBE]), 4, "tutti run")


if __name__ == "__main__":
    unittest.main()
