"""Tests of tests/gpu/check itself, on a Python that pretends to run PyTorch: check_test.py."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
# Told with -c it says where its packages are; else it is a rank of the script, of which the second run fails where there is a file "fail";
# with a file "alone" rank 1 fails, and rank 0 waits for it.
PYTHON = """#!/bin/sh
here=$(dirname "$0")
if [ "$1" = -c ]; then
  [ -d "$here/site" ] || exit 1
  printf '["%s", "%s"]' "$here/site/torch" "$here/site/nvidia/nccl"
  exit 0
fi
echo "NCCL version 2.28.9+tutti0.1.0"
echo "rank $RANK preload='$LD_PRELOAD' path='$PYTHONPATH' words=$*"
[ -n "$PYTHONPATH" ] && echo "file: $(cat "$PYTHONPATH/torch/lib/../../nvidia/nccl/lib/libnccl.so.2")"
echo run >> "$here/runs.$RANK"
if [ -e "$here/fail" ] && [ "$(wc -l < "$here/runs.$RANK")" = 2 ]; then echo "FAIL torch.rank$RANK/all: pretended"; exit 1; fi
if [ -e "$here/alone" ]; then
  [ "$RANK" = 1 ] || exec sleep 60
  echo "FAIL torch.rank$RANK/all: pretended"; exit 1
fi
echo "ok   torch.rank$RANK/all: fine"
"""


# What `tutti` says on a machine without GPUs.
TUTTI = """#!/bin/sh
case "$1" in
  doctor) if [ -e "$(dirname "$0")/ill" ]; then echo "WRONG a limit"; echo "1 wrong, 0 notes"; exit 1; fi
    printf 'note  no CUDA driver: ranks compute on CPUs\n\n0 wrong, 1 notes, 0 in order\n';;
  topo) echo "this machine: 2 host devices, 0 nets, 1 CPUs";;
  explain) echo "all_reduce, 1 MiB, 4 ranks on 1 node"; [ -e "$TUTTI_CACHE_DIR/kept" ] && echo "constants: measured 1"
    echo "twoshot   1   296.76  chosen";;
  tune) touch "$TUTTI_CACHE_DIR/kept"; printf '2 cores, 60 calls measured\nkept in %s/kept\n' "$TUTTI_CACHE_DIR";;
  *) exit 2;;
esac
"""


class Tools(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for place in ("lib", "bin"):
            (self.root / place).mkdir()
        (self.root / "lib" / "libnccl.so.2").write_text("ours")

    def install(self):
        (self.root / "bin" / "tutti").write_text(TUTTI)
        (self.root / "bin" / "tutti").chmod(0o755)

    def check(self):
        done = subprocess.run([sys.executable, HERE / "check", "tools", "--host", "--build", self.root, "--seconds", "30"],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_all_commands_are_run(self):
        self.install()
        code, output = self.check()
        self.assertEqual(code, 0, output)
        self.assertIn("check: 4 passed, 0 failed, 0 skipped", output)

    def test_what_is_wrong_is_told(self):
        self.install()
        (self.root / "bin" / "ill").touch()
        code, output = self.check()
        self.assertEqual(code, 1, output)
        self.assertIn("FAIL tools/doctor: AssertionError: a limit", output)

    def test_a_build_without_tools_is_skipped(self):
        code, output = self.check()
        self.assertEqual(code, 1, output)  # nothing was checked
        self.assertIn("skip tools: ", output)
        self.assertIn("check: 0 passed, 0 failed, 1 skipped", output)


class Torch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "lib").mkdir()
        (self.root / "lib" / "libnccl.so.2").write_text("ours")
        python = self.root / "python"
        python.write_text(PYTHON)
        python.chmod(0o755)

    def install(self):
        for name, text in (("torch/__init__.py", ""), ("torch/lib/libtorch.so", "torch"), ("torch/cuda/nccl.py", "nccl"),
                           ("nvidia/nccl/lib/libnccl.so.2", "theirs"), ("nvidia/nccl/include/nccl.h", "header"),
                           ("nvidia/cublas/lib/libcublas.so", "cublas")):
            file = self.root / "site" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def check(self, *words):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run([sys.executable, HERE / "check", "torch", "--build", self.root, "--python", self.root / "python", "--seconds", "30",
                               *words], capture_output=True, text=True, check=False, env=environment)
        return done.returncode, done.stdout + done.stderr

    def test_the_script_is_repeated_and_repetitions_are_counted(self):
        code, output = self.check("--repeat", "3")
        self.assertEqual(code, 0, output)
        self.assertIn("torch: 3 of 3 repetitions passed; 3 were started", output)
        self.assertIn("check: 6 passed, 0 failed, 0 skipped", output)

    def test_a_repetition_that_fails_is_not_lost_among_others(self):
        (self.root / "fail").touch()
        code, output = self.check("--repeat", "3")
        self.assertEqual(code, 1, output)
        self.assertIn("torch: 2 of 3 repetitions passed; 3 were started", output)

    def test_ranks_that_wait_for_one_that_failed_are_ended(self):
        (self.root / "alone").touch()
        begun = time.monotonic()
        code, output = self.check()
        self.assertEqual(code, 1, output)
        self.assertLess(time.monotonic() - begun, 15, output)
        self.assertIn("FAIL torch.rank1/all: pretended", output)
        self.assertIn("FAIL torch/time: killed after another rank had failed", output)

    def test_the_file_of_the_wheel_is_swapped_for_the_process_alone(self):
        self.install()
        code, output = self.check("--swap")
        self.assertEqual(code, 0, output)
        self.assertIn("rank 1 preload=''", output)
        self.assertIn("file: ours", output)
        self.assertEqual((self.root / "site/nvidia/nccl/lib/libnccl.so.2").read_text(), "theirs")

    def test_what_is_not_installed_cannot_be_swapped(self):
        code, output = self.check("--swap")
        self.assertEqual(code, 1, output)
        self.assertIn("FAIL torch/swap:", output)

    def test_curves_are_compared_bit_by_bit_with_a_reference_only(self):
        self.assertEqual(self.check("--exact")[0], 2)
        code, output = self.check("--exact", "--reference", str(self.root / "lib" / "libnccl.so.2"))
        self.assertEqual(code, 0, output)
        self.assertRegex(output, r"words=\S+pytorch.py --curves \S+curves.tutti --compare \S+curves.reference --exact")


if __name__ == "__main__":
    unittest.main()
