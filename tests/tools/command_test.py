"""Runs the tutti command as a user does: command_test.py PATH-OF-TUTTI."""
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

TUTTI = sys.argv.pop()
KEYS = ["op", "type", "redop", "root", "ranks", "count", "bytes", "inPlace", "timeUs", "p99Us", "algbwGBps", "busbwGBps", "wrong"]
REDUCING = ["all_reduce", "reduce_scatter", "reduce"]
ROOTED = ["broadcast", "reduce", "gather", "scatter"]
BLOCKS = ["all_gather", "reduce_scatter", "alltoall", "gather", "scatter"]
OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv"]
SIZES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8, "bfloat16": 2,
         "f8e4m3": 1, "f8e5m2": 1}


LAUNCHERS = ("NCCL_", "TUTTI_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE")


def run(*arguments, environment=None):
    """Exit code, stdout, stderr."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    clean.update(environment or {})
    done = subprocess.run([TUTTI, *arguments], capture_output=True, text=True, timeout=100, env=clean, check=False)
    return done.returncode, done.stdout, done.stderr


def bus_factor(op, ranks):
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in BLOCKS else 1


class Temporary(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def bench(self, *arguments):
        """The rows of a run that must succeed."""
        code, out, err = run("bench", *arguments, "--json", self.path("rows.json"))
        self.assertEqual(code, 0, out + err)
        with open(self.path("rows.json"), encoding="utf-8") as file:
            return json.load(file)


class Bench(Temporary):
    def check_row(self, row):
        self.assertEqual(list(row), KEYS)
        self.assertEqual(row["wrong"], 0, row)
        self.assertGreater(row["timeUs"], 0)
        self.assertGreaterEqual(row["p99Us"], row["timeUs"])
        blocks = row["ranks"] if row["op"] in BLOCKS else 1
        self.assertEqual(row["bytes"], row["count"] * blocks * SIZES[row["type"]])
        self.assertAlmostEqual(row["algbwGBps"], row["bytes"] / row["timeUs"] / 1e3, delta=row["algbwGBps"] * 1e-6)
        self.assertAlmostEqual(row["busbwGBps"], row["algbwGBps"] * bus_factor(row["op"], row["ranks"]), delta=1e-9 + row["busbwGBps"] * 1e-6)
        self.assertEqual(row["root"] >= 0, row["op"] in ROOTED)
        self.assertEqual(row["redop"] != "none", row["op"] in REDUCING)

    def test_every_operation_is_right(self):
        for op in OPS:
            for ranks in (2, 3, 5):
                rows = self.bench(op, "--ranks", str(ranks), "-b", "8", "-e", "40K", "-f", "71", "-n", "2", "-w", "0", "-d", "float")
                self.assertEqual({row["inPlace"] for row in rows}, {False} if op in ("alltoall", "sendrecv") else {False, True})
                for row in rows:
                    self.assertEqual((row["op"], row["ranks"], row["type"]), (op, ranks, "float"))
                    self.check_row(row)

    def test_every_type_and_reduction_is_right(self):
        for op, ranks in (("all_reduce", 3), ("reduce_scatter", 2)):
            rows = self.bench(op, "--ranks", str(ranks), "-b", "5K", "-e", "5K", "-n", "1", "-d", "all", "-o", "all", "--inplace", "0")
            self.assertEqual(len({(row["type"], row["redop"]) for row in rows}), 12 * 6)
            for row in rows:
                self.check_row(row)

    def test_every_root(self):
        rows = self.bench("reduce", "--ranks", "3", "-r", "all", "-b", "1K", "-e", "1K", "-n", "1")
        self.assertEqual([row["root"] for row in rows], [0, 0, 1, 1, 2, 2])

    def test_one_rank_and_no_elements(self):
        for op in OPS:
            for row in self.bench(op, "--ranks", "1", "-b", "0", "-e", "0", "-n", "1"):
                self.assertEqual((row["count"], row["bytes"], row["wrong"]), (0, 0, 0))

    def test_without_check_nothing_is_claimed(self):
        rows = self.bench("broadcast", "-c", "0", "-b", "64", "-e", "64", "-n", "1")
        self.assertEqual([row["wrong"] for row in rows], [None, None])

    def test_table_and_memcpy_ratio(self):
        code, out, err = run("bench", "all_reduce", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "3", "--memcpy", "1")
        self.assertEqual(code, 0, err)
        self.assertEqual(err, "")
        self.assertRegex(out, r"# library /\S*libnccl\.so")
        self.assertRegex(out, r"\n +1024 +256 +float +sum +-1 \| +[\d.]+ +[\d.]+ +[\d.]+ +0 \| +[\d.]+ +[\d.]+ +[\d.]+ +0\n")
        self.assertRegex(out, r"memcpy on \d+ threads: [\d.]+ GB/s; ratio [\d.]+\n")
        self.assertRegex(out, r"average bus bandwidth [\d.]+ GB/s over 2 rows; wrong elements: 0")

    def test_plot_is_well_formed(self):
        code, _, err = run("bench", "all_gather", "-b", "1K", "-e", "4K", "-n", "1", "--plot", self.path("plot.svg"))
        self.assertEqual(code, 0, err)
        root = ElementTree.parse(self.path("plot.svg")).getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        self.assertEqual(len(root.findall("{http://www.w3.org/2000/svg}polyline")), 4)

    def test_buffers_and_rewritten_inputs(self):
        for arguments in (["--buffers", "ncclmem"], ["--rewrite"], ["--rewrite", "--buffers", "ncclmem", "--devices", "host"]):
            for op in ("all_reduce", "alltoall"):
                for row in self.bench(op, "--ranks", "3", "-b", "1K", "-e", "64K", "-f", "8", "-n", "3", *arguments):
                    self.check_row(row)

    def test_a_launcher_of_one_process(self):
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
        code, out, err = run("bench", "all_reduce", "-e", "8", "-n", "1", environment=alone)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("all_reduce: 1 ranks", out)
        code, out, err = run("bench", "all_reduce", "-e", "8", "-n", "1", "--threads", "3", environment=alone)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("all_reduce: 3 ranks", out)
        code, out, err = run("bench", "all_reduce", "-e", "8", "-n", "1", "--launcher", "none", environment=alone)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("all_reduce: 4 ranks (threads of one process)", out)

    def test_an_error_of_the_library_is_told(self):
        code, _, err = run("bench", "all_reduce", "-e", "8", environment={"NCCL_ALGO": "nonsense"})
        self.assertEqual(code, 3, err)
        self.assertIn("nonsense", err)


class Arguments(Temporary):
    def refused(self, *arguments, says):
        code, out, err = run(*arguments)
        self.assertEqual(code, 2, out + err)
        for text in says:
            self.assertIn(text, err)

    def test_bad_arguments(self):
        self.refused(says=["--help"])
        self.refused("dance", says=["tutti --help"])
        self.refused("bench", "all_redcue", says=["all_redcue", *OPS])
        self.refused("bench", "all_reduce", "-b", "12Q", says=["--minbytes", "12Q"])
        self.refused("bench", "all_reduce", "-b", "2M", "-e", "1M", says=["--maxbytes"])
        self.refused("bench", "all_reduce", "-f", "1", says=["stepfactor"])
        self.refused("bench", "all_reduce", "-i", "0", says=["--stepbytes"])
        self.refused("bench", "all_reduce", "-d", "fp64", says=["fp64", "double"])
        self.refused("bench", "all_reduce", "-o", "xor", says=["xor", "mulsum"])
        self.refused("bench", "broadcast", "-r", "4", says=["--root", "0 to 3"])
        self.refused("bench", "all_reduce", "--ranks", "0", says=["ranks"])
        self.refused("bench", "all_reduce", "-n", "many", says=["iters"])
        self.refused("bench", "all_reduce", "-g", "2", says=["-g"])
        self.refused("bench", "alltoall", "--inplace", "1", says=["in-place"])
        self.refused("bench", "all_reduce", "--plot", "plot.png", says=["plot.png", ".svg"])
        for number in ("nan", "-nan", "inf", "-inf", "-2", "1e400", "0x", "2x", ""):
            self.refused("bench", "all_reduce", f"--stepfactor={number}", says=["--stepfactor"])
            self.refused("bench", "all_reduce", f"--timeout={number}", says=["--timeout"])
        for number in ("nan", "inf", "-1", "1.5", "99999999999", "18446744073709551617", ""):
            for option in ("--ranks", "--iters", "--warmup_iters", "--check", "--memcpy"):
                self.refused("bench", "all_reduce", f"{option}={number}", says=[option])
        for number in ("nan", "inf", "-1", "1e9", "0x40", "9" * 400, "99999999999T", "0.3", ""):
            for option in ("--minbytes", "--maxbytes"):
                self.refused("bench", "all_reduce", f"{option}={number}", says=[option])
        for number in ("nan", "-1", "1.5", "99999999999"):
            self.refused("bench", "broadcast", f"--root={number}", says=["--root"])
            self.refused("prove", f"--ranks={number}", says=["--ranks"])
            self.refused("prove", f"--slots={number}", says=["--slots"])
        self.refused("bench", "all_reduce", "--threads", "2", says=["--threads", "tutti run"])
        self.refused("bench", "all_reduce", "--nodes", "5", says=["--nodes", "4 ranks", "5 nodes"])
        self.refused("bench", "all_reduce", "--nodes", "2", "--ranks", "6", "--threads", "4", says=["--nodes"])
        self.refused("bench", "all_reduce", "--nodes", "1", says=["--nodes"])
        self.refused("bench", "all_reduce", "--buffers", "gold", says=["--buffers", "ncclmem"])
        self.refused("bench", "all_reduce", "--devices", "abacus", says=["--devices"])
        half = {"RANK": "1"}
        code, _, err = run("bench", "all_reduce", environment=half)
        self.assertEqual(code, 2)
        self.assertIn("RANK is set, WORLD_SIZE is not", err)
        code, _, err = run("bench", "all_reduce", "--ranks", "7", environment={"PMI_RANK": "0", "PMI_SIZE": "2"})
        self.assertEqual(code, 2)
        self.assertIn("MPICH started 2 processes", err)
        self.refused("prove", "--ranks", "3-x", says=["--ranks", "3-x"])
        self.refused("prove", "--algorithm", "hypercube", says=["hypercube", "AllReduce:ring"])
        self.refused("env", "NCCL_ALGORITHM", says=["NCCL_ALGORITHM"])

    def test_files_that_cannot_be_written_are_told_at_once(self):
        code, out, err = run("bench", "all_reduce", "--json", self.path("no/such/folder.json"))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("folder.json", err)

    def test_help_and_version(self):
        for command in ([], ["bench"], ["run"], ["prove"], ["env"], ["topo"], ["topo", "facts"], ["explain"], ["tune"]):
            code, out, err = run(*command, "--help")
            self.assertEqual((code, err), (0, ""))
            self.assertIn("--help", out)
        self.assertIn("Examples:", run("bench", "--help")[1])
        code, out, _ = run("--version")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"^tutti \d+\.\d+\.\d+ \(NCCL interface 2\.\d+\.\d+\)\n$")


class Prove(Temporary):
    def test_a_few_cases(self):
        code, out, err = run("prove", "--algorithm", "ring", "--ranks", "2-4", "--markdown", self.path("proofs.md"))
        self.assertEqual((code, err), (0, ""), out)
        self.assertRegex(out, r"AllReduce +ring .* proved")
        self.assertRegex(out, r"\d+ cases, all proved")
        with open(self.path("proofs.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("\n| collective | algorithm |", text)
        self.assertTrue(text.endswith("\n\n" + re.search(r"\d+ cases, all proved", out)[0] + ".\n"), text[-200:])

    def test_list(self):
        code, out, _ = run("prove", "--list")
        self.assertEqual(code, 0)
        self.assertIn("AllReduce:tree", out)


class Env(Temporary):
    def test_value_and_source(self):
        with open(self.path("tutti.conf"), "w", encoding="utf-8") as file:
            file.write("NCCL_ALGO=Ring\nTUTTI_SLOTS=9\n")
        code, out, err = run("env", "NCCL_ALGO", "tutti_slots", "TUTTI_SPIN",
                             environment={"NCCL_CONF_FILE": self.path("tutti.conf"), "TUTTI_SLOTS": "3"})
        self.assertEqual((code, err), (0, ""))
        self.assertIn(f"now: Ring (from {self.path('tutti.conf')})", out)
        self.assertIn("now: 3 (from environment)", out)
        self.assertIn("now: -1 (default)", out)

    def test_all_set_and_markdown(self):
        code, out, _ = run("env")
        self.assertEqual(code, 0)
        self.assertGreater(len(re.findall(r"^(?:NCCL|TUTTI)_\w+$", out, re.M)), 100)
        code, out, err = run("env", "--set", environment={"TUTTI_SLOTS": "3", "NCCL_ALGOS": "Ring"})
        self.assertEqual(re.findall(r"^(?:NCCL|TUTTI)_\w+$", out, re.M), ["TUTTI_SLOTS"])
        self.assertIn("NCCL_ALGOS", err)
        code, out, _ = run("env", "--markdown")
        self.assertEqual(code, 0)
        self.assertTrue(out.startswith("# Environment variables"))


class Topo(Temporary):
    DGX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "topologies", "nvidia-dgx1v-v100x8.xml")

    def test_text_and_facts(self):
        code, out, err = run("topo", "--file", self.DGX)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("8 GPUs, 4 nets, 2 CPUs", out)
        code, out, err = run("topo", "facts", "--file", self.DGX, "--nodes", "2", "--gpus", "0-3", "--collnet")
        self.assertEqual((code, err), (0, ""))
        facts = json.loads(out)
        self.assertEqual(facts["topology"], "nvidia-dgx1v-v100x8")
        self.assertEqual(facts["runs"]["n2-collnet-gpus0_1_2_3"]["system"]["counts"]["GPU"], 4)

    def test_rings_over_several_hosts(self):
        code, out, err = run("topo", "--file", self.DGX, "--nodes", "3")
        self.assertEqual((code, err), (0, ""))
        rings = out.partition("\nRings over 3 such hosts; where they cross: rank[net]\n")[2].splitlines()
        orders = [line.split(":")[1].split() for line in rings if " : " in line]
        self.assertTrue(orders)
        for order in orders:
            self.assertEqual(sorted(map(int, order)), list(range(24)))
            self.assertEqual([int(rank) // 8 for rank in order[::8]], sorted(int(rank) // 8 for rank in order[::8]))
        crossings = [re.findall(r"(\d+)\[(\d)\]>(\d+)\[(\d)\]", line) for line in rings if "crosses hosts at" in line]
        self.assertEqual(len(crossings), len(orders))
        for found in crossings:
            self.assertEqual(len(found), 3)
            for from_rank, _, to_rank, _ in found:
                self.assertNotEqual(int(from_rank) // 8, int(to_rank) // 8)
        self.assertEqual({net for found in crossings for _, net, _, _ in found}, {"0", "1", "2", "3"})
        self.assertNotIn("such hosts", run("topo", "--file", self.DGX)[1])
        alone = os.path.join(os.path.dirname(self.DGX), "single-a100-nonic.xml")
        self.assertIn("Rings over 2 such hosts: none: the communicator leaves the 1 GPUs", run("topo", "--file", alone, "--nodes", "2")[1])
        recording = os.path.join(os.path.dirname(self.DGX), "..", "recordings", "two-sockets-4numa.xml")
        code, out, err = run("topo", "--replay", recording, "--host-devices", "4", "--nodes", "2")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("\n  Channel 00/01 crosses hosts at ", out)

    def test_what_is_written_reads_the_same(self):
        code, out, _ = run("topo", "--file", self.DGX, "--gpus", "0-3", "--write", self.path("used.xml"))
        self.assertEqual(code, 0)
        again = run("topo", "--file", self.path("used.xml"))
        self.assertEqual((again[0], again[1].partition(":")[2]), (0, out.partition(":")[2]))
        self.assertEqual(run("topo", "--file", self.DGX, "--write", "/no/such/folder/x.xml")[0], 3)

    def test_this_machine_and_its_recording(self):
        code, out, err = run("topo", "--record", self.path("machine.xml"))
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^this machine: ")
        self.assertRegex(out, r"\nCPU0-\d+  ")
        allowed = sorted(os.sched_getaffinity(0))
        self.assertRegex(out, rf"\nThis process may use CPUs {allowed[0]}\b.*\({len(allowed)}\)\n")
        again = run("topo", "--replay", self.path("machine.xml"))
        self.assertEqual((again[0], again[2]), (0, ""))
        # All but the name, and the notes on what could not be asked.
        strip = lambda text: re.sub(r"\n  no [^\n]*", "", text.partition(":")[2]).replace("\nNotes\n", "")
        self.assertEqual(strip(again[1]).split(), strip(out).split())
        with open(self.path("machine.xml"), encoding="utf-8") as file:
            self.assertNotIn(socket.gethostname(), file.read())

    def test_picture(self):
        code, _, err = run("topo", "--file", self.DGX, "--nodes", "2", "--svg", self.path("dgx.svg"))
        self.assertEqual((code, err), (0, ""))
        texts = [element.text for element in ElementTree.parse(self.path("dgx.svg")).iter()]
        for words in ("GPU7", "NET3", "NVL 40", "ring 0", "tree 0"):
            self.assertIn(words, texts)
        self.assertEqual(run("topo", "--file", self.DGX, "--svg", "/no/such/folder/x.svg")[0], 3)

    def test_ranks_without_gpus(self):
        recording = os.path.join(os.path.dirname(self.DGX), "..", "recordings", "two-sockets-4numa.xml")
        code, out, err = run("topo", "--replay", recording, "--host-devices", "8", "--svg", self.path("host.svg"), "--write", self.path("host.xml"))
        self.assertEqual((code, err), (0, ""))
        for words in ("8 host devices, 1 nets, 4 CPUs", "CPUs 12-15  16 GiB  distances 0:32 1:12 2:32 3:10", "0 1 2 3 6 7 4 5\n"):
            self.assertIn(words, out)
        self.assertIn("HOST7", [element.text for element in ElementTree.parse(self.path("host.svg")).iter()])
        code, again, _ = run("topo", "--file", self.path("host.xml"))  # what was written says which ranks there are
        self.assertEqual((code, again.partition(":")[2]), (0, out.partition(":")[2].partition("\nThis process")[0]))
        code, facts, _ = run("topo", "facts", "--replay", recording, "--host-devices", "8")
        self.assertEqual(json.loads(facts)["runs"]["n1"]["final"]["ringsFromRank0"], [[0, 1, 2, 3, 6, 7, 4, 5]])
        code, out, _ = run("topo", "--file", self.DGX, "--host-devices", "2")  # GPUs are there, and not meant
        self.assertEqual(code, 0)
        self.assertIn("2 host devices", out)
        self.assertEqual(run("topo", "--replay", recording, "--host-devices", "9999")[0], 2)

    def test_nets_that_are_merged(self):
        pairs = ("--set", "NCCL_NET_FORCE_MERGE=mlx5_0,mlx5_1;mlx5_2,mlx5_3")
        code, out, err = run("topo", "facts", "--file", self.DGX, "--nodes", "2", *pairs)
        self.assertEqual((code, err), (0, ""))
        nets = json.loads(out)["runs"]["n2"]["system"]["nets"]
        self.assertEqual([(net["dev"], net["devs"], net["bw"]) for net in nets], [(4, [0, 1], 25), (5, [2, 3], 25)])
        code, out, _ = run("topo", "--file", self.DGX, *pairs, "--write", self.path("merged.xml"))
        self.assertEqual(code, 0)
        self.assertIn("NET4  port 1  of NET0+NET1", out)
        self.assertEqual(run("topo", "--file", self.path("merged.xml"))[1].partition(":")[2], out.partition(":")[2])
        code, _, err = run("topo", "--file", self.DGX, "--set", "NCCL_NET_FORCE_MERGE=mlx5_0,mlx5_9")
        self.assertEqual(code, 2)
        self.assertIn('has no net "mlx5_9"', err)

    def test_a_file_that_detection_completes(self):
        with open(self.path("part.xml"), "w", encoding="utf-8") as file:
            file.write('<system version="1"><cpu numaid="0" affinity="f" arch="arm64"><pci busid="0000:01:00.0" class="0x0302"/></cpu></system>')
        code, out, _ = run("topo", "--file", self.path("part.xml"))
        self.assertEqual(code, 0)
        self.assertIn("no GPU that can be used; 1 CPUs", out)
        code, _, err = run("topo", "--file", self.path("part.xml"), "--svg", self.path("none.svg"))
        self.assertEqual(code, 2)
        self.assertIn("there is no GPU to draw", err)

    def test_variables_count(self):
        def peer(*arguments, environment=None):
            code, out, _ = run("topo", "facts", "--file", self.DGX, *arguments, environment=environment)
            self.assertEqual(code, 0)
            return json.loads(out)["runs"]["n1"]["paths"]["gpu_gpu"]["GPU0"]["GPU1"]["type"]
        self.assertEqual(peer(), "NVL")
        self.assertEqual(peer("--set", "NCCL_P2P_DISABLE=1"), "PHB")
        self.assertEqual(peer(environment={"NCCL_P2P_LEVEL": "LOC"}), "PHB")

    def test_what_is_wrong_is_told(self):
        for arguments, code, words in ((["--file", "/no/such"], 3, "No such file"),
                                       (["--replay", "/no/such"], 3, "No such file"),
                                       (["--replay", self.DGX], 2, "expected <recording"),
                                       (["--replay", self.DGX, "--file", self.DGX], 2, "excludes"),
                                       (["--file", self.DGX, "--gpus", "7,8"], 2, "there is no GPU 8"),
                                       (["--file", self.DGX, "--set", "NCCL_P2P_LEVEL=far"], 2, "expected LOC, NVL"),
                                       (["--file", self.DGX, "--set", "HOME=1"], 2, "expected NAME=VALUE"),
                                       (["--file", __file__], 2, "no well-formed XML")):
            for command in (["topo"], ["topo", "facts"]):
                got, out, err = run(*command, *arguments)
                self.assertEqual((got, out), (code, ""), err)
                self.assertIn(words, err)


class Explain(Temporary):
    DGX = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "topologies", "nvidia-dgxh100-h100x8.xml")

    def test_three_kinds_of_machines(self):
        for machine, ranks in ((["--topo", self.DGX, "--nodes", "8"], 64), (["--gpus", "4"], 4), (["--ranks", "3"], 3)):
            code, out, err = run("explain", "all_reduce", "4M", "--json", *machine)
            self.assertEqual(code, 0, err)
            plan = json.loads(out)
            self.assertEqual((plan["ranks"], plan["bytes"], plan["collective"]), (ranks, 4 << 20, "all_reduce"))
            self.assertTrue(all(one["reason"] for one in plan["rejected"]))
            code, out, err = run("explain", "all_reduce", "4M", *machine)
            self.assertEqual(code, 0, err)
            self.assertIn(plan["algorithm"], out)

    def test_bounds_that_contradict_or_are_none_are_told(self):
        for environment, told in (({"NCCL_MIN_NCHANNELS": "40", "NCCL_MAX_NRINGS": "4"},
                                   "NCCL_MIN_NCHANNELS=40 is more than NCCL_MAX_NRINGS=4: expected at most 4, or a larger NCCL_MAX_NRINGS"),
                                  ({"NCCL_MIN_CTAS": "40", "NCCL_MAX_CTAS": "4"}, "NCCL_MIN_CTAS=40 is more than NCCL_MAX_CTAS=4"),
                                  ({"NCCL_MIN_CTAS": "9", "NCCL_MAX_NCHANNELS": "8"}, "NCCL_MIN_CTAS=9 is more than NCCL_MAX_NCHANNELS=8"),
                                  ({"NCCL_MIN_P2P_NCHANNELS": "8", "NCCL_MAX_P2P_NCHANNELS": "2"}, "NCCL_MIN_P2P_NCHANNELS=8 is more than")):
            for machine in (["--ranks", "2"], ["--gpus", "2"]):
                code, out, err = run("explain", "all_reduce", "4M", *machine, environment=environment)
                self.assertNotEqual(code, 0, out)
                self.assertIn(told, out + err)
        for environment in ({"NCCL_MAX_CTAS": "1"}, {"NCCL_MIN_CTAS": "4", "NCCL_MAX_CTAS": "4"}, {"NCCL_MAX_P2P_NCHANNELS": "1"}):
            code, out, err = run("explain", "all_reduce", "4M", "--ranks", "2", environment=environment)
            self.assertEqual(code, 0, err)
        code, out, err = run("explain", "all_reduce", "4M", "--ranks", "2", environment={"NCCL_MAX_CTAS": "999", "NCCL_DEBUG": "INFO"})
        self.assertEqual(code, 0, err)
        self.assertIn("NCCL_MAX_CTAS=999: expected 1 to 64: ignored", out + err)

    def test_variables_forbid(self):
        for machine in (["--topo", self.DGX, "--nodes", "2"], ["--gpus", "4"], ["--ranks", "3"]):
            code, out, err = run("explain", "all_reduce", "8", "--json", *machine, environment={"NCCL_ALGO": "allreduce:tree"})
            self.assertEqual(code, 0, err)
            plan = json.loads(out)
            self.assertEqual(plan["algorithm"], "tree")
            self.assertTrue(any("NCCL_ALGO=allreduce:tree" in one["reason"] for one in plan["rejected"]), out)
        code, out, err = run("explain", "all_reduce", "8", "--json", "--topo", self.DGX, environment={"NCCL_PROTO": "^LL"})
        self.assertNotEqual(json.loads(out)["protocol"], "LL")
        for machine in (["--topo", self.DGX], ["--gpus", "4"]):
            code, out, err = run("explain", "all_reduce", "1G", "--json", *machine, environment={"NCCL_MAX_CTAS": "2"})
            self.assertEqual(code, 0, err)
            self.assertLessEqual(json.loads(out)["channels"], 2)

    def test_what_is_wrong_is_told(self):
        for arguments, code, word in ((["all_reduce", "many"], 2, "many"), (["reduce_all", "8"], 2, "reduce_all"),
                                      (["all_reduce", "8", "--topo", "/no/such.xml"], 3, "/no/such.xml"),
                                      (["all_reduce", "8", "--nodes", "2"], 2, "--topo"), (["all_reduce"], 2, "SIZE"),
                                      (["broadcast", "8", "--ranks", "2", "--root", "2"], 2, "--root"),
                                      (["all_reduce", "8", "--gpus", "2", "--ranks", "2"], 2, "--"),
                                      (["all_reduce", "8", "--datatype", "all"], 2, "--datatype")):
            got, _, err = run("explain", *arguments)
            self.assertEqual(got, code, (arguments, err))
            self.assertIn(word, err)
        code, _, err = run("explain", "all_reduce", "8", "--gpus", "2", environment={"NCCL_ALGO": "rings"})
        self.assertEqual(code, 2)
        self.assertIn("rings", err)


class Tune(Temporary):
    MEASURED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "measured", "nccl-h200x4.json")
    CONSTANTS = {"hopNs": 1, "switchNs": 1, "messageNs": 1, "pipeNs": 1, "bytesPerNs": 1000, "farHopNs": 1, "farBytesPerNs": 1}

    def test_the_model_of_links_is_near_enough(self):
        code, out, err = run("tune", "--errors", self.MEASURED)
        self.assertEqual(code, 0, out + err)
        self.assertIn("allowed are 25%", out)
        self.assertEqual(run("tune", "--errors", "/no/such.json")[0], 3)
        with open(self.path("broken.json"), "w", encoding="utf-8") as file:
            file.write("{")
        code, _, err = run("tune", "--errors", self.path("broken.json"))
        self.assertEqual(code, 2)
        self.assertIn("broken.json", err)

    def explain(self):
        environment = {"TUTTI_CACHE_DIR": self.path("cache"), "NCCL_DEBUG": "WARN"}
        code, out, err = run("explain", "all_reduce", "64K", "--ranks", "2", "--json", environment=environment)
        self.assertEqual(code, 0, err)
        return json.loads(out[out.index("{"):]), out[:out.index("{")] + err

    def test_what_is_kept_is_what_communicators_choose_by(self):
        code, out, err = run("tune", "--dry-run", environment={"TUTTI_CACHE_DIR": self.path("cache")})
        self.assertEqual(code, 0, err)
        self.assertFalse(os.path.exists(self.path("cache")))
        key = re.search(r"machine ([0-9a-f]{16})", out)[1]
        before, warnings = self.explain()
        self.assertEqual((before["constants"], warnings.count("WARN")), ("host", 0), warnings)
        os.mkdir(self.path("cache"))
        kept = self.path(f"cache/tune-{key}.json")
        platform = {"name": "quick", "source": "a test", "key": key, "host": self.CONSTANTS}
        with open(kept, "w", encoding="utf-8") as file:
            json.dump(platform, file)
        after, warnings = self.explain()
        self.assertEqual((after["constants"], warnings.count("WARN")), ("quick", 0), warnings)
        self.assertLess(after["estimatedUs"], before["estimatedUs"] / 10)
        code, out, err = run("explain", "all_reduce", "64K", "--ranks", "2",
                             environment={"TUTTI_CACHE_DIR": self.path("cache"), "NCCL_DEBUG": "INFO"})
        self.assertEqual(code, 0, err)
        self.assertEqual((out + err).count(f'chosen by the constants "quick", measured on this machine: {kept}'), 1, out + err)
        with open(kept, "w", encoding="utf-8") as file:
            json.dump({**platform, "host": {**self.CONSTANTS, "hopNs": "soon"}}, file)
        broken, warnings = self.explain()
        self.assertEqual(broken["constants"], "host")
        self.assertEqual(warnings.count("WARN"), 1, warnings)
        self.assertIn("host.hopNs", warnings)
        self.assertIn(kept, warnings)


if __name__ == "__main__":
    unittest.main()
