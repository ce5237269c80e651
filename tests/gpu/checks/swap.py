"""A Python environment in which the file of the NCCL wheel is another library, without a change to the environment itself.

PyTorch finds the wheel's file by the path that its own libraries carry, $ORIGIN/../../nvidia/nccl/lib, where $ORIGIN is the folder by which they
were opened. So a folder with torch and nvidia beside each other, of links to what is installed but for that one file, is what a swap on disk is.
"""
import json
import os
import pathlib
import shutil
import subprocess

FIND = ("import importlib.util, json; find = lambda name: list(importlib.util.find_spec(name).submodule_search_locations)[0]; "
        "print(json.dumps([find('torch'), find('nvidia.nccl')]))")


def installed(python):
    """The folders of torch and nvidia.nccl of this Python; None where it lacks one."""
    found = subprocess.run([python, "-c", FIND], capture_output=True, text=True, check=False)
    return [pathlib.Path(folder) for folder in json.loads(found.stdout)] if found.returncode == 0 else None


def link_all(source, target, but=()):
    target.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name not in but:
            os.symlink(entry, target / entry.name)


def shadow(torch, nccl, library, target):
    """Makes the folder `target`, to come first in PYTHONPATH, and gives the file in it that `library` was copied to."""
    link_all(torch, target / "torch", but=("lib", "__pycache__"))
    link_all(torch / "lib", target / "torch" / "lib")  # a folder: `..` of a link would lead back to what is installed
    link_all(nccl.parent, target / "nvidia", but=("nccl", "__pycache__"))
    link_all(nccl, target / "nvidia" / "nccl", but=("lib",))
    link_all(nccl / "lib", target / "nvidia" / "nccl" / "lib", but=("libnccl.so.2",))
    return pathlib.Path(shutil.copy(library, target / "nvidia" / "nccl" / "lib" / "libnccl.so.2"))
