"""The scripts of bench/gpu on a program that pretends: what they conclude from rows, and how they end."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "bench" / "gpu"
sys.path.insert(0, str(SCRIPTS))
from support import goals, program, table  # noqa: E402

K, M, G = goals.K, goals.M, goals.G

# Rows as bench_gpu writes them. PRETEND: JSON of "ratios" by run (one list a run, by operation), "ends" (the exit code), "cut" (not complete).
PRETEND = r'''#!/usr/bin/env python3
import json, os, pathlib, sys
words = sys.argv[1:]
deeds = json.loads(os.environ["PRETEND"])
def after(name):
    return words[words.index(name) + 1]
with open(os.environ["PRETEND_LOG"], "a") as log:
    log.write(json.dumps({"words": words, "debug": os.environ.get("NCCL_DEBUG"), "stray": os.environ.get("NCCL_STRAY")}) + "\n")
if words[0] == "plot":
    sys.exit(0)
number = sum(1 for line in open(os.environ["PRETEND_LOG"])) - 1
runs = deeds["ratios"]
ratios = runs[min(number, len(runs) - 1)]
ops = [w for w in words[1:words.index("--from")]]
modes = words[words.index("--modes") + 1:] if "--modes" in words else ["eager", "graph"]
modes = [m for m in modes if m in ("eager", "graph")]
side = {"medianUs": 2.0, "p99Us": 3.0, "q1Us": 1.9, "q3Us": 2.1, "busGBps": 1.0, "cpuUs": 1.0, "wrong": 0, "kernels": 1, "ctas": 8, "sms": 8,
        "threads": 512, "copies": 0, "others": 0}
with open(after("--json"), "w") as out:
    out.write(json.dumps({"header": {"device": "NVIDIA H200", "ranks": int(after("-n")), "rounds": 20, "a": {"name": "tutti", "version": "1", "env": {}},
                                     "b": {"name": "NCCL", "version": "2", "env": {}}}}) + "\n")
    for library in ("tutti", "NCCL") if words[0] == "overlap" else ():
        out.write(json.dumps({"overlap": "reduce", "library": library, "bytes": 1 << 20, "productAloneUs": 100.0, "callAloneUs": 10.0,
                              "productBesideUs": 110.0 if library == "tutti" else 150.0, "callBesideUs": 12.0}) + "\n")
    for op in ops if words[0] == "compare" else ():
        for mode in modes:
            out.write(json.dumps({"op": op, "type": "float", "redop": None, "ranks": 2, "bytes": 1024, "mode": mode, "inPlace": False,
                                  "buffers": "plain", "maxCtas": 0, "a": side, "b": dict(side, wrong=deeds.get("wrong", 0)),
                                  "ratio": ratios.get(op, 1.0)}) + "\n")
    if not deeds.get("cut"):
        out.write(json.dumps({"complete": 1}) + "\n")
sys.exit(deeds.get("ends", 0))
'''


def cell(op, size, ratio, mode="graph", ctas=8, **side):
    own = {"medianUs": 10.0, "p99Us": 11.0, "busGBps": 100.0, "cpuUs": 4.0, "wrong": 0, "ctas": ctas, "sms": ctas, "copies": 0} | side
    other = own | {"medianUs": 10.0 * ratio, "cpuUs": 8.0}
    return {"op": op, "type": "float", "redop": None, "bytes": size, "mode": mode, "ranks": 2, "inPlace": False, "buffers": "plain", "maxCtas": 0,
            "ratio": ratio, "a": own, "b": other}


def seen(name, **measured):
    return next(goal for goal in goals.GOALS if goal.name == name).judge(goals.Measured(**measured))


class Goals(unittest.TestCase):
    def check(self, name, must, stretch, text="", **measured):
        found = seen(name, **measured)
        self.assertEqual((found.must, found.stretch), (must, stretch), found)
        self.assertIn(text, found.text)

    def test_the_worst_row_decides_and_is_named(self):
        cells = [cell("all_reduce", 8, 3.0), cell("all_reduce", 16 * K, 2.1), cell("all_reduce", 32 * K, 0.5), cell("all_gather", 8, 0.1)]
        types = [dict(cell("all_reduce", 64, 2.9), type="half", redop="max")]
        self.check("G1", True, False, "2.10 (all_reduce 16 KiB graph, least of 3)", cells=cells, types=types)
        cells[0]["ratio"] = 1.99
        self.check("G1", False, False, "all_reduce 8 B", cells=cells, types=types)
        self.check("G1", True, True, cells=[cell("all_reduce", 8, 2.8), cell("all_reduce", 8, 0.5, mode="eager")], types=types)
        self.check("G1", None, None, cells=cells)
        types[0]["ratio"] = 1.5
        self.check("G1", False, False, "1.50 (all_reduce half max 64 B graph", cells=cells, types=types)

    def test_what_was_not_measured_is_not_met(self):
        for goal in goals.GOALS:
            found = goal.judge(goals.Measured())
            self.assertIsNone(found.must, goal.name)
            self.assertTrue(found.text, goal.name)
        text, missed = goals.table(goals.Measured())
        self.assertEqual((missed, text.count("not measured")), (len(goals.GOALS), len(goals.GOALS)))

    def test_all_parts_of_a_goal_count(self):
        cells = [cell("sendrecv", size, 2.0) for size in (8, M, 128 * M)]
        self.check("G8", True, True, cells=cells)
        cells[2]["ratio"] = 1.04
        self.check("G8", False, False, "1.04 (sendrecv 128 MiB graph", cells=cells)
        self.check("G8", None, None, cells=cells[:2])

    def test_what_the_link_does_not_carry_is_its_limit(self):
        cells = [cell("sendrecv", size, 2.0) for size in (8, M, 128 * M)]
        cells[2]["ratio"] = 1.01
        for rival, rate, is_limited in ((352.0, 363.0, True), (300.0, 363.0, False), (352.0, None, False)):
            cells[2]["b"] = dict(cells[2]["b"], busGBps=rival)
            found = seen("G8", cells=cells, limits={"storesGBps": rate} if rate else {})
            self.assertEqual((found.must, found.is_limited), (False, is_limited), found)
            self.assertEqual("no: the link's limit" == goals.verdict(found), is_limited)
            self.assertEqual("stores at 363 GB/s would make" in found.text, rate is not None, found.text)
        self.assertFalse(seen("G8", cells=[*cells[:2], cell("sendrecv", 128 * M, 1.2)], limits={"storesGBps": 100.0}).is_limited)
        cells[1]["ratio"] = 1.0  # another part is missed as well, and NCCL sends 100 GB/s there, too little to speak of the link
        cells[2]["b"]["busGBps"] = 352.0
        found = seen("G8", cells=cells, limits={"storesGBps": 363.0})
        self.assertEqual((found.is_limited, found.text.count("stores at")), (False, 1), found)

    def test_engines_carry_more_in_graphs(self):
        limits = {"storesGBps": 359.0, "enginesGBps": 385.0}
        for mode, is_limited in (("graph", False), ("eager", True)):
            cells = [cell("sendrecv", size, 2.0) for size in (8, M, 128 * M)]
            cells[2] |= {"ratio": 1.01, "mode": mode, "b": dict(cells[2]["b"], busGBps=352.0)}
            found = seen("G8", cells=cells, limits=limits)
            self.assertEqual((found.must, found.is_limited, "engines at 385" in found.text), (False, is_limited, not is_limited), found)

    def test_the_middle_ends_where_the_number_of_gpus_says(self):
        cells = [cell("all_reduce", 64 * K, 1.7), cell("all_reduce", M, 1.1)]
        self.check("G2", False, False, cells=cells)
        for one in cells:
            one["ranks"] = 4
        self.check("G2", True, False, cells=cells)

    def test_large_all_reduces_need_few_blocks_too(self):
        plain = [cell("all_reduce", 64 * M, 0.5, ctas=32)]
        self.check("G3", True, False, "12 CTAs", cells=plain, windows=[cell("all_reduce", 64 * M, 1.0, ctas=12)])
        self.check("G3", False, False, "32 CTAs", cells=plain, windows=[cell("all_reduce", 64 * M, 1.2, ctas=13)])
        self.check("G3", False, False, cells=plain, windows=[cell("all_reduce", 64 * M, 1.2, ctas=0)])  # not looked at
        self.check("G3", None, None, "on symmetric windows", cells=plain)

    def test_copy_engines_may_have_one_block_for_flags(self):
        cells = [cell("all_gather", 64 * M, 1.1, ctas=1)]
        self.check("G6", True, True, gathers=cells)
        self.check("G6", False, False, gathers=[*cells, cell("broadcast", 64 * M, 1.1, ctas=3)])
        self.check("G7", True, False, "1.60 (all_gather 64 KiB", engines=[cell("all_gather", 64 * K, 1.6), cell("all_gather", M, 1.0)])
        self.check("G7", False, False, engines=[cell("all_gather", 64 * K, 1.4)])

    def test_fewest_sms_of_the_own_peak(self):
        sweep = []
        for limit, own, other in ((2, 90, 20), (4, 100, 50), (8, 98, 90), (16, 99, 120)):
            one = cell("all_reduce", 256 * M, 1.0, ctas=limit)
            one["a"], one["b"] = dict(one["a"], busGBps=own), dict(one["b"], busGBps=other)
            sweep.append(one)
        self.check("G9", True, True, "all_reduce 4 against 16", sweep=sweep)
        sweep[0]["a"]["busGBps"] = 95.0
        self.check("G9", True, True, "all_reduce 2 against 16", sweep=sweep)

    def test_losses_of_the_product(self):
        def row(side, loss, size=M):
            return {"overlap": "all_reduce", "side": side, "bytes": size, "productAloneUs": 100.0, "productBesideUs": 100.0 * (1 + loss)}
        self.check("G10", True, False, "10.0% against 20.0%", overlap=[row("a", 0.10), row("b", 0.20)])
        self.check("G10", False, False, overlap=[row("a", 0.10), row("b", 0.40), row("a", 0.2, 2 * M), row("b", 0.2, 2 * M)])
        self.check("G10", True, True, overlap=[row("a", -0.01), row("b", 0.20)])
        self.check("G10", False, False, overlap=[row("a", 0.0), row("b", -0.01)])  # nothing to gain is nothing gained

    def test_memory_and_set_up(self):
        def lives(own, other, ready=90.0):
            return {"a": {"besideBytes": own * M, "allToAllBytes": 2 * own * M, "readyMs": ready},
                    "b": {"besideBytes": other * M, "allToAllBytes": 2 * other * M, "readyMs": 500.0}}
        self.check("G11", True, False, lives=lives(32, 1000))
        self.check("G11", False, False, lives=lives(33, 4000))
        self.check("G11", True, True, lives=lives(30, 2000))
        self.check("G11", None, None, lives=lives(0, 0))
        self.check("G12", True, True, "90 ms against 500", lives=lives(1, 1))
        self.check("G12", False, False, lives=lives(1, 1, ready=251.0))

    def test_cost_of_aborts_is_the_larger_of_a_share_and_a_time(self):
        def pair(without, with_it):
            return [dict(cell("all_reduce", 8, with_it / without), a={"medianUs": without}, b={"medianUs": with_it})]
        self.check("G22", True, False, "+0.100 us", unabortable=pair(3.0, 3.1 - 1e-9))
        self.check("G22", False, False, unabortable=pair(3.0, 3.11))
        self.check("G22", True, False, unabortable=pair(10.0, 10.19))
        self.check("G22", True, True, unabortable=pair(3.0, 2.99))

    def test_cpu_time_and_eager_time_both_count(self):
        self.check("G23", True, True, "CPU 2.00", cells=[cell("all_reduce", 8, 2.0, mode="eager")])
        self.check("G23", False, False, cells=[cell("all_reduce", 8, 1.5, mode="eager")])
        self.check("G23", False, False, cells=[cell("all_reduce", 8, 2.0, mode="eager", cpuUs=6.0)])

    def test_rows_that_are_worse(self):
        self.check("all", True, True, cells=[cell("reduce", 8, 0.97)])
        self.check("all", False, False, "1 of 2 rows; 0.96 (reduce 8 B graph", cells=[cell("reduce", 8, 0.96), cell("reduce", K, 2.0)])


class Tables(unittest.TestCase):
    def test_what_the_tables_say(self):
        rows = program.Rows([{"header": {"a": {"name": "tutti"}, "b": {"name": "NCCL"}}},
                             {"memory": {"maxCtas": 0, "a": {"connectedBytes": M, "warmBytes": 2 * M}, "b": {"connectedBytes": G, "warmBytes": G}}},
                             cell("all_reduce", K, 2.0), cell("all_reduce", M, 0.5, copies=3), cell("alltoall", K, 1.5, wrong=7)])
        text = table.tables(rows) + table.summary(rows) + table.matrix(rows, "graph")
        for words in ("| 1 KiB | 10.00 | 11.00 | 20.00 |", "| 8+3c |", "1.50 WRONG 7 / 7", "| 1 KiB | 2.00 | 1.50 |", "| 1 MiB | 0.50 |  |",
                      "1.00 times faster in the geometric mean of 2 sizes, at least 0.50 (1 MiB); 1 worse", "tutti 2 MiB (1 by the communicator"):
            self.assertIn(words, text)
        self.assertEqual(rows.wrong(), 14)

    def test_rows_that_were_cut_off_are_read_to_there(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps(cell("reduce", 8, 1.0)) + '\n{"op": "red')
            file.flush()
            rows = program.read_rows(file.name)
        self.assertEqual((len(rows.cells), rows.is_complete()), (1, False))

    def test_sizes(self):
        self.assertEqual([program.parse_size(text) for text in ("8", "64K", "1.5M", "1GiB")], [8, 64 * K, 3 * M // 2, G])
        self.assertEqual([program.size_text(size) for size in (8, 64 * K, 3 * M // 2, G)], ["8 B", "64 KiB", "1.5 MiB", "1 GiB"])
        self.assertRaises(ValueError, program.parse_size, "64X")


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "bench_gpu"
        self.program.write_text(PRETEND, encoding="utf-8")
        self.program.chmod(0o755)
        for name in ("a.so", "b.so"):
            (self.folder / name).write_text(name, encoding="utf-8")
        self.log = self.folder / "log"

    def script(self, name, *words, **deeds):
        """Exit code, everything printed, and the runs of the program."""
        self.log.unlink(missing_ok=True)
        libraries = [str(self.folder / library) for library in (("a.so",) if name == "choice" else ("a.so", "b.so"))]
        command = [sys.executable, str(SCRIPTS / name), *libraries, "--program", str(self.program), "--out", str(self.folder / "out"),
                   *map(str, words)]
        environment = {**os.environ, "PRETEND": json.dumps({"ratios": [{}], **deeds}), "PRETEND_LOG": str(self.log), "NCCL_STRAY": "yes"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
        runs = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()] if self.log.exists() else []
        return done.returncode, done.stdout + done.stderr, runs

    def test_compare(self):
        code, text, runs = self.script("compare", "--only", "all_reduce,reduce", "--", "--in-place", ratios=[{"reduce": 1.25}])
        self.assertEqual(code, 0, text)
        self.assertIn("| 1 KiB | 1.00 | 1.25 |", text)
        self.assertIn("--in-place", runs[0]["words"])
        self.assertEqual((runs[0]["stray"], runs[1]["words"][0]), (None, "plot"))
        self.assertIn("1.25", (self.folder / "out/compare.md").read_text(encoding="utf-8"))
        again = subprocess.run([sys.executable, str(SCRIPTS / "compare"), "--merge", *[str(self.folder / "out/compare.json")] * 2, "--out",
                                str(self.folder / "out2")], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("geometric mean of 2 sizes", again.stdout)

    def test_compare_ends_badly_where_anything_was_wrong_or_missing(self):
        for deeds, word in (({"cut": True}, "the time was up"), ({"ends": 1}, "wrong elements"), ({"ends": 3}, "exit code 3")):
            code, text, _ = self.script("compare", "--only", "reduce", **deeds)
            self.assertEqual(code, 1, text)
            self.assertIn(word, text)
            self.assertIn("| 1 KiB | 1.00 |", text)  # what there is, is shown all the same
        self.assertEqual(self.script("compare", "--only", "nothing")[0], 2)

    def test_a_library_beside_itself_is_copied(self):
        _, _, runs = self.script("compare", "--only", "reduce")
        words = runs[0]["words"]
        self.assertEqual(words[words.index("--b") + 1], str(self.folder / "b.so"))
        (self.folder / "b.so").unlink()
        (self.folder / "b.so").symlink_to(self.folder / "a.so")
        _, _, runs = self.script("compare", "--only", "reduce")
        words = runs[0]["words"]
        self.assertNotEqual(os.path.basename(words[words.index("--b") + 1]), "b.so")

    def test_gate(self):
        stored = ["--stored", self.folder / "stored.json"]
        code, text, _ = self.script("gate", *stored)
        self.assertEqual(code, 2, text)
        self.assertIn("nothing is stored", text)
        self.assertEqual(self.script("gate", *stored, "--store", cut=True)[0], 1)
        self.assertEqual(self.script("gate", *stored, "--store", ratios=[{"reduce": 1.5}])[0], 0)
        code, text, runs = self.script("gate", *stored, ratios=[{"reduce": 1.44}])  # 4% less
        self.assertEqual((code, len(runs)), (0, 1), text)
        code, text, runs = self.script("gate", *stored, ratios=[{"reduce": 1.40}])  # and 7%, twice, too much for a graph
        self.assertEqual((code, len(runs)), (1, 2), text)
        self.assertIn("LOST reduce 1024 graph: 1.40, again 1.40, stored 1.50", text)
        self.assertNotIn("eager", text)
        code, text, runs = self.script("gate", *stored, ratios=[{"reduce": 1.15}])  # and 23%, too much for the processor as well
        self.assertEqual((code, len(runs)), (1, 3), text)
        self.assertIn("LOST reduce 1024 eager: 1.15, again 1.15, stored 1.50", text)
        code, text, runs = self.script("gate", *stored, ratios=[{"reduce": 1.0}, {"reduce": 1.5}, {"reduce": 1.5}])  # noise
        self.assertEqual((code, len(runs)), (0, 3), text)
        self.assertIn("ok   reduce 1024 eager: 1.00, again 1.50", text)

    def test_gate_misses_rows_that_are_not_there(self):
        stored = self.folder / "stored.json"
        stored.write_text(json.dumps({"ratios": {"reduce 1024 graph": 1.0, "reduce 2048 graph": 1.0}}), encoding="utf-8")
        code, text, _ = self.script("gate", "--stored", stored)
        self.assertEqual(code, 1, text)
        self.assertIn("LOST reduce 2048 graph: not measured", text)

    def test_choice(self):
        words = ["--only", "sendrecv", "--ctas", "0,4"]  # one algorithm, three protocols
        code, text, runs = self.script("choice", *words, "--part", "2/2", ratios=[{"sendrecv": 0.96}])
        self.assertEqual((code, len(runs)), (3, 3), text)  # within 5%, but half of it is not measured
        self.assertIn("0 of 1 calls are more than 5% off the best; 3 of 6 combinations are not measured", text)
        forced = [[run["words"][i + 1] for i, word in enumerate(run["words"]) if word == "--b-env"] for run in runs]
        self.assertEqual(forced[1], ["TUTTI_ALGO=p2p", "NCCL_PROTO=LL128", "NCCL_MIN_CTAS=4", "NCCL_MAX_CTAS=4"])
        code, text, runs = self.script("choice", *words, ratios=[{"sendrecv": 1.2}, {"sendrecv": 0.8}, {"sendrecv": 1.1}])
        self.assertEqual((code, len(runs)), (1, 3), text)  # only what was missing
        self.assertIn("| p2p LL128 own | **+25.0%** |", text)
        probes = self.folder / "probes.json"
        self.assertEqual(self.script("choice", *words, "--only-print", "--probes", probes)[0], 1)
        found = json.loads(probes.read_text(encoding="utf-8"))
        self.assertEqual(len(found), 6)
        self.assertEqual({(probe["call"], probe["algorithm"], probe["bytes"]) for probe in found}, {("sendrecv", "p2p", 1024)})
        self.assertTrue(all(probe["us"] > 0 and probe["blocks"] > 0 and probe["ranks"] > 1 for probe in found), found)
        self.assertEqual(self.script("choice", "--only", "nothing")[0], 2)

    def test_choice_tells_what_was_refused_and_what_broke(self):
        words = ["--only", "sendrecv", "--ctas", "4"]
        code, text, _ = self.script("choice", *words, ends=2)
        self.assertEqual((code, text.count("refused: sendrecv p2p")), (0, 3), text)
        for path in (self.folder / "out").glob("choice-*"):
            path.unlink()
        code, text, _ = self.script("choice", *words, ends=1)
        self.assertEqual((code, text.count("FAILED sendrecv p2p")), (1, 3), text)

    def test_overlap(self):
        code, text, runs = self.script("overlap", "--only", "reduce", "--sizes", "1M-1M")
        self.assertEqual(code, 0, text)
        self.assertEqual(runs[0]["words"][:2], ["overlap", "reduce"])
        self.assertIn("| reduce | 1 MiB | 110 us (+10.0%) | 150 us (+50.0%) | 12.0 us (+20.0%) |", text)


if __name__ == "__main__":
    unittest.main()
