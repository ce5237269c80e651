"""Tests tests/gpu/run without a GPU: run_test.py FAKE TESTED REFERENCE TUTTI, the fake programs and libraries and the tutti command."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
TUTTI, REFERENCE, TESTED, FAKE = (pathlib.Path(sys.argv.pop()).resolve() for _ in range(4))
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from runner import cases, judge, output, process  # noqa: E402

ROW = "        1024           256     float     sum      -1    12.34    0.08    0.08       0    13.00    0.08    0.08     N/A"
COLUMNS = 11
ALL_REDUCE = r"^all_reduce -g 2 8\.\.64M x8 float sum$"


class Parser(unittest.TestCase):
    def test_row(self):
        row = output.parse(ROW).rows[0]
        self.assertEqual(row, output.Row(1024, "float", "sum", -1, (12.34, 13.0), (0, None)))

    def test_row_without_operator(self):
        row = output.parse(ROW.replace("sum", "   ")).rows[0]
        self.assertEqual((row.op, row.root, row.type), ("", -1, "float"))

    def test_wrong_elements_are_added(self):
        text = "\n".join([ROW, ROW.replace("     0  ", "1e+06  "), "# Out of bounds values : 2 FAILED"])
        out = output.parse(text)
        self.assertEqual((out.wrong, out.unchecked, out.out_of_bounds, out.bounds_verdict), (1e6, 2, 2, "FAILED"))

    def test_what_is_no_whole_row_is_malformed(self):
        for bad in (ROW[:60], ROW.replace("12.34", "nan"), ROW.replace("12.34", "-1.0"), ROW + " 1 2", ROW.replace("-1", "x", 1)):
            out = output.parse(bad)
            self.assertEqual((len(out.rows), len(out.malformed)), (0, 1), bad)

    def test_other_lines_are_none(self):
        out = output.parse("# Using devices\n#\n\nReducing 8 8\n# Reducing maxBytes to 77 due to memory limitation\n")
        self.assertEqual((out.rows, out.malformed, out.reduced_to, out.out_of_bounds), ([], [], 77, None))


class Cases(unittest.TestCase):
    def test_sizes(self):
        self.assertEqual(cases.Sizes(8, 4 << 30).count(), 30)
        self.assertEqual(cases.Sizes(1, 4099, 0, 61).count(), len(range(1, 4100, 61)))

    def test_every_check_is_in_one_part(self):
        checks = cases.full(4, True)
        parts = [cases.part_of(checks, i, 5) for i in range(1, 6)]
        self.assertEqual(sorted(map(id, checks)), sorted(id(c) for part in parts for c in part))
        for unit in {c.unit for c in checks} - {""}:
            self.assertEqual(sum(any(c.unit == unit for c in part) for part in parts), 1, unit)
        for part in parts:
            self.assertLess(sum(c.estimate_s for c in part), 1.4 * sum(c.estimate_s for c in checks) / 5)

    def test_what_one_thread_cannot_do_is_done_by_threads(self):
        for checks in (cases.full(4, True), cases.gate(4)):
            modes = [c.mode for c in checks if c.program == "hypercube"]
            self.assertEqual((modes.count("g"), modes.count("t") > 0), (0, True))
            self.assertEqual(len({c.title() for c in checks if not c.unit}), sum(not c.unit for c in checks))
        self.assertIn("g", [c.mode for c in cases.full(2, True) if c.program == "hypercube"])

    def test_ways_that_are_rarely_gone_have_rows(self):
        checks = cases.full(4, False)
        for variable, programs in (("NCCL_CUMEM_ENABLE", 5), ("TUTTI_MEM_LIMIT", 2), ("TUTTI_BULK", 1)):
            self.assertEqual(len({c.program for c in checks if variable in c.environment}), programs, variable)
        self.assertEqual(sum(c.arguments[:1] == ("absent",) for c in checks), 1)
        repeated = {c.extra for c in checks if c.cycles == 100}
        self.assertEqual(repeated, {(), ("-G", "20"), ("-R", "1"), ("-z", "1")})
        windows = [c for c in checks if c.extra == ("-R", "2")]
        for program in cases.IN_WINDOWS:
            every = [c for c in windows if c.program == program and c.types == cases.TYPES]
            self.assertEqual({c.mode for c in every}, {"g", "mpi"}, program)
            self.assertTrue(all(c.ops == cases.OPS or program not in cases.WITH_OPS for c in every), program)
        self.assertEqual({(c.tool, c.program) for c in windows if c.tool},
                         {(tool, program) for tool in ("memcheck", "racecheck", "synccheck", "initcheck") for program in ("all_reduce", "all_gather")})

    def test_lent_buffers_have_rows_of_processes(self):
        lent = [c for c in cases.full(4, False) if c.extra == ("-G", "2")]
        self.assertEqual({c.mode for c in lent}, {"mpi"})
        for program in cases.IN_WINDOWS:
            ways = [(len(c.types), *c.environment) for c in lent if c.program == program]
            self.assertLessEqual({(len(cases.TYPES), "TUTTI_MAPPED"), (1, "TUTTI_MAPPED"), (1, "TUTTI_COPY_ENGINES")}, set(ways), program)
        self.assertEqual({c.program for c in cases.gate(2) if c.extra == ("-G", "2")}, {"all_reduce", "all_gather"})

    def test_the_gate_has_plain_memory_and_keeps_its_time(self):
        for gpus in (1, 2, 4, 8):
            checks = cases.gate(gpus)
            self.assertEqual(sum("NCCL_CUMEM_ENABLE" in c.environment for c in checks), int(gpus > 1))
            alone = sum(c.estimate_s for c in checks if c.runs_alone())
            self.assertLess(alone + sum(c.estimate_s for c in checks if not c.runs_alone()) / 4, 90)  # of 120

    def test_parts_keep_their_time(self):
        """As many as CONTRIBUTING.md names, four checks at a time."""
        for gpus in (2, 4):
            for index in range(1, 7):
                checks = cases.part_of(cases.full(gpus, False), index, 6)
                alone = sum(c.estimate_s for c in checks if c.runs_alone())
                self.assertLess(alone + sum(c.estimate_s for c in checks if not c.runs_alone()) / 4, 440, f"part {index} on {gpus}")

    def test_algorithms_are_those_of_the_library(self):
        listed = subprocess.run([TUTTI, "prove", "--list"], capture_output=True, text=True, check=True, timeout=60).stdout
        names = {("alltoall" if c == "AlltoAll" else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", c).lower().replace("send_recv", "sendrecv"), a)
                 for c, a in re.findall(r"^\s*(\w+):(\w+)", listed, re.M)}
        known = [(program, a) for table in (cases.ALGORITHMS, cases.NOT_ON_GPUS) for program, algorithms in table.items() for a in algorithms]
        self.assertEqual(names, set(known))
        self.assertEqual(len(names), len(known), "in one table alone")


class BuildId(unittest.TestCase):
    def test_is_that_of_readelf(self):
        said = subprocess.run(["readelf", "-n", TESTED], capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertEqual(process.build_id(TESTED), re.search(r"Build ID: (\w+)", said)[1])
        self.assertNotEqual(process.build_id(TESTED), process.build_id(REFERENCE))

    def test_of_other_files(self):
        self.assertEqual(process.build_id(__file__), "(no 64-bit ELF file)")
        self.assertIn("unreadable", process.build_id("/nowhere"))


class Judge(unittest.TestCase):
    """Of programs that say themselves what they have checked."""
    LIBRARY = process.Library("/lib/libnccl.so.2", "ab")

    def judged(self, check, said, code=0, mapped=True):
        outcome = process.Outcome(code, False, 1.0, said, "", {1: {self.LIBRARY}} if mapped else {}, [], [])
        result = judge.judge(check, outcome, None if check.library == "none" else self.LIBRARY, True)
        return result.verdict, "; ".join([*result.errors, *result.notes])

    def test_applications(self):
        check = cases.applications(2)[0]
        self.assertEqual(self.judged(check, "check: 3 passed, 0 failed, 0 skipped\n"), (judge.OK, ""))
        self.assertEqual(self.judged(check, "check: 3 passed, 0 failed, 1 skipped\n"), (judge.OK, "1 skipped"))
        self.assertEqual(self.judged(check, "check: 3 passed, 1 failed, 0 skipped\n", 1)[0], judge.FAILED)
        self.assertEqual(self.judged(check, "check: 0 passed, 0 failed, 0 skipped\n")[0], judge.FAILED)
        self.assertEqual(self.judged(check, "ok   graphs/one\n")[0], judge.FAILED)
        self.assertEqual(self.judged(check, "check: 3 passed, 0 failed, 0 skipped\n", mapped=False)[0], judge.FAILED)
        self.assertEqual(self.judged(check, "skip jax: no module\ncheck: 0 passed, 0 failed, 1 skipped\n", 1),
                         (judge.NOT_RUN, "skipped: jax: no module"))

    def test_cases_of_a_probe(self):
        check = cases.probe("gpu_probe", "verify", least=200)
        for said, verdict in (("300 of 4416 cases, 0 failed", judge.OK), ("199 of 4416 cases, 0 failed", judge.FAILED),
                              ("48 of 48 cases, 0 failed", judge.OK), ("verify:", judge.FAILED)):
            self.assertEqual(self.judged(check, f"verify: ranks 2: {said}\n", mapped=False)[0], verdict, said)


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        names = {"build/bin": ("driver_probe", "ll128_torture", "gpu_probe"), "mpi": ("mpirun",)}
        for place in ("tests", "tests-mpi"):
            names[place] = [f"{program}_perf" for program in cases.PROGRAMS]
        for place, programs in names.items():
            (self.root / place).mkdir(parents=True)
            for program in programs:
                (self.root / place / program).symlink_to(FAKE)
        (self.root / "build/lib").mkdir()
        (self.root / "build/lib/libnccl.so.2").symlink_to(TESTED)

    def run_it(self, *arguments, deeds="", mpi=True, gpus=2, **environment):
        """Exit code, everything printed, and the verdict column of the table by row."""
        command = [HERE / "run", "--build", self.root / "build", "--nccl-tests", self.root / "tests", "--assume-gpus", str(gpus),
                   "--mpirun", f"{self.root}/mpi/mpirun --any", *arguments]
        if "--jobs" not in arguments:
            command += ["--jobs", "1"]  # they are short: side by side on a busy machine they may not be looked at
        if mpi:
            command += ["--nccl-tests-mpi", self.root / "tests-mpi"]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=100, check=False,
                              env={**os.environ, "FAKE": deeds, **environment})
        lines = [line for line in done.stdout.splitlines() if re.match(r"\| \d+ ", line)]
        rows = [[cell.strip() for cell in line.removeprefix("| ").removesuffix(" |").split(" | ")] for line in lines]
        return done.returncode, done.stdout + done.stderr, [row[8] for row in rows if len(row) == COLUMNS]

    def fails(self, deed, *words, **environment):
        code, text, verdicts = self.run_it("--only", ALL_REDUCE, "--limit", "2", deeds=f"all_reduce_perf={deed}", **environment)
        self.assertEqual((code, verdicts), (1, ["FAILED"]), text)
        for word in words:
            self.assertIn(word, text)
        return text

    def test_gate_passes_and_names_the_library(self):
        code, text, verdicts = self.run_it("--gate", "--out", self.root / "out", NCCL_STRAY="yes", LD_PRELOAD="")
        self.assertEqual(code, 0, text)
        self.assertEqual(verdicts, ["ok"] * len(cases.gate(2)))
        named = f"{TESTED} {process.build_id(TESTED)}"
        table = (self.root / "out/table.md").read_text(encoding="utf-8")
        self.assertEqual(table.count(named), len(cases.gate(2)) - 3)  # all but the probes
        kept = [file.read_text(encoding="utf-8") for file in (self.root / "out").glob("*LL128.txt")]
        self.assertEqual(len(kept), 1)
        self.assertIn("algorithm 'ring' protocol 'LL128' stray ''", kept[0])

    def test_what_launchers_set_is_cleared_and_what_mpirun_needs_is_kept(self):
        marks = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_UNIVERSE_SIZE": "4", "PMI_RANK": "3", "PMIX_RANK": "3"}
        code, text, verdicts = self.run_it("--only", "^all_reduce .*mpirun", "--out", self.root / "out", LD_LIBRARY_PATH="/of/the/user",
                                           OMPI_MCA_plm_rsh_agent="/of/the/machine", **marks)
        self.assertEqual((code, set(verdicts)), (0, {"ok"}), text)  # the library under test was mapped
        kept = [file.read_text(encoding="utf-8") for file in (self.root / "out").glob("*all_reduce*.txt")]
        self.assertEqual(len(kept), len(verdicts))
        for said in kept:
            for mark in marks:
                self.assertIn(f"# {mark} ''\n", said)
            self.assertIn("# OMPI_MCA_plm_rsh_agent '/of/the/machine'\n", said)
            self.assertRegex(said, r"# LD_LIBRARY_PATH '/[^:]*/tested:/of/the/user'\n")

    def test_wrong_elements(self):
        self.fails("wrong", "wrong elements, first at", "6 in 8 rows")

    def test_out_of_bounds(self):
        self.fails("bounds", "out of bounds values: 1 FAILED")

    def test_crash(self):
        self.fails("crash", "killed by signal 6", "2 sizes instead of 8", "no closing line")

    def test_exit_code(self):
        self.fails("fail", "exit code 3")

    def test_missing_size(self):
        self.fails("short", "7 sizes instead of 8")

    def test_missing_closing_line(self):
        self.fails("silent", "no closing line")

    def test_mixed_lines(self):
        self.fails("mixed", "1 rows cut off", "something else")

    def test_nothing_checked(self):
        self.fails("unchecked", "16 results were not checked")

    def test_foreign_library(self):
        text = self.fails("foreign", "not the library under test", FAKE_FOREIGN=str(REFERENCE))
        self.assertIn(f"{REFERENCE} {process.build_id(REFERENCE)}", text)

    def test_no_library(self):
        self.fails("unmapped", "libnccl was seen in 0 processes, not in 1", "none mapped")

    def test_process_left_behind(self):
        self.fails("leave", "1 processes outlived it")

    def test_missing_type(self):
        code, text, verdicts = self.run_it("--only", "all_reduce .*12 types", deeds="all_reduce_perf=poor")
        self.assertEqual((code, verdicts), (1, ["FAILED"]), text)
        self.assertIn("6 of 72 cases are missing, such as f8e5m2 avg -1", text)

    def test_forced_is_compared_with_the_log(self):
        for deed, verdict, word in (("", "ok", ""), ("detour", "FAILED", "took algorithm pat, not ring"),
                                    ("simplify", "FAILED", "took protocol simple, not ll"),
                                    ("taciturn", "FAILED", "the log names no algorithm; the log names no protocol")):
            code, text, verdicts = self.run_it("--only", "^all_reduce.*PROTO=LL$", deeds=f"all_reduce_perf={deed}")
            self.assertEqual((code, verdicts), (int(verdict != "ok"), [verdict]), text)
            self.assertIn(word, text)

    def test_host_memory_must_be_told_by_the_log(self):
        for deed, verdict in (("", "ok"), ("direct", "FAILED")):
            code, text, verdicts = self.run_it("--only", "^all_reduce -g.*(P2P_DISABLE|spoil)", deeds=f"all_reduce_perf={deed}")
            self.assertEqual((code, verdicts), (int(verdict != "ok"), [verdict] * 2), text)
            self.assertEqual("the log does not tell: exchange data through host memory" in text, verdict != "ok", text)

    def test_under_a_sanitizer(self):
        tool = self.root / "mpi/compute-sanitizer"
        for say, code, wanted, word in (("ERROR SUMMARY: 0 errors", 0, "ok", ""), ("ERROR SUMMARY: 1 error", 9, "FAILED", "memcheck has findings"),
                                        ("", 0, "FAILED", "gave no summary"), ("ERROR SUMMARY: 0 errors", 3, "FAILED", "exit code 3")):
            tool.write_text('#!/bin/sh\nwhile [ "${1#/}" = "$1" ]; do shift; done\n"$@" || exit $?\n' + f"echo '{say}'\nexit {code}\n", encoding="utf-8")
            tool.chmod(0o755)
            found, text, verdicts = self.run_it("--full", "--only", "^memcheck all_reduce .*sum$",
                                                PATH=f"{tool.parent}:{os.environ['PATH']}")
            self.assertEqual((found, verdicts), (int(wanted != "ok"), [wanted]), text)
            self.assertIn(word, text)

    def test_hang_is_ended_and_the_rest_goes_on(self):
        for only, command in (("-g 2 8..64M x8 float( sum)?$", "all_reduce_perf -t 1 -g 2"), ("mpirun .*64M x8 float sum$", "-np 2")):
            pids = self.root / "pids"
            code, text, verdicts = self.run_it("--only", f"^(all_reduce|broadcast) .*{only}", "--limit", "0.5",
                                               deeds="all_reduce_perf=hang", FAKE_PIDS=str(pids))
            self.assertEqual((code, verdicts[0], set(verdicts[1:])), (1, "FAILED", {"ok"} if "-g" in only else set()), text)
            for word in ("hangs: ended after", "last lines of output:", "state S", command):
                self.assertIn(word, text)
            for pid in pids.read_text(encoding="utf-8").split():
                self.assertIn((process.stat_of(pid) or [""] * 3)[2], ("", "Z"), pid)

    def test_what_the_time_for_all_ends_is_no_hang(self):
        code, text, verdicts = self.run_it("--only", "^all_reduce .*-g 2 8..64M x8 float( sum)?$", "--seconds", "6", deeds="all_reduce_perf=hang")
        self.assertEqual((code, set(verdicts)), (1, {"not run"}), text)
        self.assertRegex(text, r"not run to its end: time was over \(6 s\) after [56] s of it")
        self.assertNotIn("hangs", text)

    def test_side_by_side(self):
        """Three that hang are ended in the time of one; probes do not run beside them, and the table keeps its order."""
        names, began = "all_reduce|alltoallv|gather", time.monotonic()
        code, text, verdicts = self.run_it("--only", rf"^({names}) -g 2 8\.\.64M x8 float( sum)?$|^gpu_probe", "--limit", "4", "--jobs", "3",
                                           deeds=" ".join(f"{name}_perf=hang" for name in names.split("|")))
        self.assertEqual((code, verdicts), (1, ["ok", *["FAILED"] * 3]), text)
        self.assertLess(time.monotonic() - began, 10)
        self.assertLess(text.index("gpu_probe"), text.index("all_reduce"))
        ended = [text.index(f"] {name} -g") for name in names.split("|")]
        table = [text.index(f"| {name} ") for name in names.split("|")]
        self.assertEqual((sorted(table), max(ended) < min(table)), (table, True), text)

    def test_no_more_side_by_side_than_memory_has_room_for(self):
        """Two that hang need more memory than there is for both: they are ended one after the other."""
        smi = self.root / "mpi/nvidia-smi"
        smi.write_text("#!/bin/sh\ncase $1 in *memory.total) echo 20000; echo 24000;; esac\n", encoding="utf-8")
        smi.chmod(0o755)
        where, began = {"PATH": f"{smi.parent}:{os.environ['PATH']}"}, time.monotonic()
        only = r"^(all_gather|gather) -g 2 8\.\.4G x2 float$"
        code, text, verdicts = self.run_it("--full", "--only", only, "--limit", "4", "--jobs", "3",
                                           deeds="all_gather_perf=hang gather_perf=hang", **where)
        self.assertEqual((code, verdicts), (1, ["FAILED"] * 2), text)
        self.assertGreater(time.monotonic() - began, 8, text)

    def test_probes(self):
        only = ("--only", "_probe|torture")
        code, text, verdicts = self.run_it(*only, deeds="ll128_torture=1 driver_probe=2")
        self.assertEqual((code, verdicts), (1, ["not run", "FAILED", "ok"]), text)
        (self.root / "build/bin/gpu_probe").unlink()
        self.assertEqual(self.run_it(*only)[2], ["ok", "ok", "not run"])

    def test_what_is_missing_is_told(self):
        code, text, verdicts = self.run_it("--only", r"^all_reduce -g 2 8\S+ x(8|16)|mpirun .*64M", mpi=False)
        self.assertEqual((code, sorted(verdicts)), (1, ["not run", *["ok"] * 5]), text)
        self.assertIn("no --nccl-tests-mpi", text)
        code, text, verdicts = self.run_it("--gpus", "4", "--only", "all_gather .*64M")
        self.assertEqual((code, verdicts), (1, ["not run"]), text)
        self.assertIn("2 GPUs were found", text)
        (self.root / "tests/gather_perf").unlink()
        self.assertEqual(self.run_it("--only", "^gather")[2], ["not run"])
        self.assertEqual(self.run_it("--only", "mpirun .*64M", "--mpirun", "/nowhere/mpirun")[2], ["not run"])
        self.assertEqual(self.run_it("--only", "^all", "--seconds", "0.5")[2][0], "not run")
        self.assertEqual(self.run_it("--only", "no such check")[0], 1)

    def test_ratios(self):
        code, text, verdicts = self.run_it("--full", "--reference", REFERENCE, "--only", "^time all_gather")
        self.assertEqual((code, verdicts), (0, ["ok"] * 6), text)
        self.assertIn("* above 1.25: 30 of 30", text)
        self.assertRegex(text, r"\| 4294967296 +\| 1\.50 \* +\|")
        self.assertEqual(text.count(f"{REFERENCE} {process.build_id(REFERENCE)}"), 3)

    def test_bad_arguments(self):
        for bad in (["--jobs", "0"], ["--part", "3/2", "--full"], ["--part", "1/2"], ["--gate", "--full"], ["--env", "A"], ["--reference", REFERENCE]):
            self.assertEqual(self.run_it(*bad)[0], 2, bad)
        self.assertEqual(self.run_it("--full", "--reference", TESTED)[0], 1)


if __name__ == "__main__":
    unittest.main()
