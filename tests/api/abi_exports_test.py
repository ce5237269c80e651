#!/usr/bin/env python3
"""Holds the shared library, and the version script it is linked with, to the symbols of tests/golden/abi.csv.

  abi_exports_test.py --table abi.csv --map abi.map
  abi_exports_test.py --table abi.csv --library libnccl.so.2 [--nccl-only] [--allow-needed NAME ...]

Exit status 0 when all agrees; otherwise each disagreement is a line.
"""
import argparse
import csv
import re
import subprocess
import sys

SONAME = "libnccl.so.2"
NEEDED = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libstdc++.so.6", "libgcc_s.so.1",
          "ld-linux-x86-64.so.2"}
LETTERS = {"weak": "W", "strong": "T"}


def read_table(path, nccl_only):
    """{name: (kind, strong twin or "")}"""
    symbols = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.reader(line for line in file if line.strip() and not line.startswith("#")):
            kind, owner, name, value, twin = row
            if kind == "symbol" and not (nccl_only and owner != "nccl"):
                assert name not in symbols, f"twice in the table: {name}"
                symbols[name] = (value, twin)
    assert symbols, f"no symbols in {path}"
    return symbols


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}).stdout


def compare_names(found, wanted, where):
    for name in sorted(wanted - found):
        yield f"{where}: missing {name}"
    for name in sorted(found - wanted):
        yield f"{where}: not in the table: {name}"


def check_map(path, symbols):
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    node = re.fullmatch(r"\s*\{\s*global:(.*?)local:\s*\*;\s*\};\s*", text, flags=re.S)
    if not node:
        yield f"{path}: not one unnamed node {{ global: ...; local: *; }};"
        return
    names = [name.strip() for name in node.group(1).split(";") if name.strip()]
    for name in names:
        if not re.fullmatch(r"\w+", name):
            yield f"{path}: not a plain name: {name}"
        if names.count(name) > 1:
            yield f"{path}: twice: {name}"
    yield from compare_names(set(names), set(symbols), path)


def check_symbols(library, symbols, nm):
    found = {}
    for line in run(nm, "-D", "--defined-only", library).splitlines():
        address, letter, name = line.split()
        if "@" in name:
            yield f"symbol with a version: {name}"
        if letter == "u":
            yield f"unique symbol, shared with every other copy in the process: {name}"
        found[name.split("@")[0]] = (letter, int(address, 16))
    yield from compare_names(set(found), set(symbols), library)
    for name in sorted(set(found) & set(symbols)):
        kind, twin = symbols[name]
        letter, address = found[name]
        if letter != LETTERS[kind]:
            yield f"{name}: is {letter}, shall be {LETTERS[kind]} ({kind})"
        if twin and twin in found and found[twin][1] != address:
            yield f"{name}: is not at the address of {twin}"


def check_dynamic(library, readelf, allowed):
    text = run(readelf, "-d", "-W", library)
    sonames = re.findall(r"\(SONAME\).*\[(.*)\]", text)
    if sonames != [SONAME]:
        yield f"soname is {sonames}, shall be {SONAME}"
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", text):
        if name not in NEEDED and not any(name.startswith(prefix) for prefix in allowed):
            yield f"needs {name}"
    if "(TEXTREL)" in text:
        yield "has text relocations"
    if "(VERDEF)" in text or "Version definition section" in run(readelf, "-V", "-W", library):
        yield "defines symbol versions"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True)
    parser.add_argument("--map")
    parser.add_argument("--library")
    parser.add_argument("--nccl-only", action="store_true", help="the library is not tutti: leave its own symbols out")
    parser.add_argument("--allow-needed", action="append", default=[], metavar="PREFIX",
                        help="library names that begin with this may be needed as well (sanitizer runtimes)")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--readelf", default="readelf")
    options = parser.parse_args()
    if not options.map and not options.library:
        parser.error("nothing to check: give --map or --library")

    symbols = read_table(options.table, options.nccl_only)
    failures = []
    if options.map:
        failures += check_map(options.map, symbols)
    if options.library:
        failures += check_symbols(options.library, symbols, options.nm)
        failures += check_dynamic(options.library, options.readelf, options.allow_needed)
    for failure in failures:
        print(failure)
    print(f"{len(symbols)} symbols, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
