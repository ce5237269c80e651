#!/usr/bin/env python3
"""What the library says of itself when a process begins: which file it is, and whether another libnccl is mapped.

  startup_test.py LIBNCCL ANOTHER     ANOTHER: any library whose file name begins with libnccl.so
"""
import os
import re
import subprocess
import sys
import unittest

LIBRARY, ANOTHER = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
ALIEN = "a second libnccl is mapped"

# Twice a communicator of one rank, with the libraries of the command line mapped.
PROGRAM = """
import ctypes, os, sys
nccl = ctypes.CDLL(sys.argv[1])
others = [ctypes.CDLL(path) for path in sys.argv[2:]]
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Id, ctypes.c_int]
nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]
for _ in range(2):
    unique, comm = Id(), ctypes.c_void_p()
    assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
    assert nccl.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0) == 0
    assert nccl.ncclCommDestroy(comm) == 0
"""


def say(level, *libraries):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TUTTI_"))}
    env.update(NCCL_DEBUG=level, TUTTI_DEVICE="host", TUTTI_CACHE_DIR="none")
    run = subprocess.run([sys.executable, "-c", PROGRAM, *libraries], env=env, timeout=60, check=True, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return run.stdout.splitlines()


def build_id(path):
    notes = subprocess.run(["readelf", "-n", path], check=True, text=True, stdout=subprocess.PIPE).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)


class Startup(unittest.TestCase):
    def only(self, lines, part):
        found = [line for line in lines if part in line]
        self.assertEqual(len(found), 1, "\n".join(lines))
        return found[0]

    def test_info_names_file_and_build_once(self):
        lines = say("INFO", LIBRARY)
        self.assertIn(f"This is {LIBRARY}, build id {build_id(LIBRARY)}", self.only(lines, "This is "))
        self.only(lines, "NCCL version ")
        self.assertFalse([line for line in lines if ALIEN in line])

    def test_a_second_library_is_named_once_and_not_taken_for_this_one(self):
        for order in ((LIBRARY, ANOTHER), (LIBRARY, ANOTHER, LIBRARY)):
            lines = say("INFO", *order)
            self.assertIn(f"{ALIEN}, {ANOTHER}, build id {build_id(ANOTHER)}", self.only(lines, ALIEN))
            self.assertIn(LIBRARY, self.only(lines, "This is "))

    def test_a_warning_needs_no_more_than_warn(self):
        lines = say("WARN", LIBRARY, ANOTHER)
        self.only(lines, ALIEN)
        self.assertFalse([line for line in lines if "This is " in line])

    def test_without_debug_nothing_is_said(self):
        self.assertEqual(say("VERSION", LIBRARY, ANOTHER), [line for line in say("VERSION", LIBRARY) if "NCCL version" in line])
        self.assertEqual(say("", LIBRARY, ANOTHER), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
