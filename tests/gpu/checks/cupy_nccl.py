"""CuPy's nccl module on the library: all GPUs of one process.

usage: cupy_nccl.py [--gpus N] [--seconds S] [--only NAME]
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder, whose cuda.py would hide others
from checks import nccl as library  # noqa: E402
from checks.report import Report, expect  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    report = Report("cupy", options.seconds, options.only)
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError as why:
        report.skip("all", f"no CuPy with NCCL: {why}")
        return report.finish()
    n = min(options.gpus, cupy.cuda.runtime.getDeviceCount())
    comms = nccl.NcclCommunicator.initAll(list(range(n)))
    arrays, outs = [], []
    for d in range(n):
        with cupy.cuda.Device(d):
            arrays.append(cupy.arange(100_003, dtype=cupy.float32) + d)
            outs.append(cupy.zeros(100_003, dtype=cupy.float32))
    null = cupy.cuda.Stream.null.ptr

    def each(act):
        nccl.groupStart()
        for d in range(n):
            with cupy.cuda.Device(d):
                act(d, comms[d])
        nccl.groupEnd()
        for d in range(n):
            cupy.cuda.Device(d).synchronize()

    def mapped():
        files = [os.path.realpath(file) for file in library.mapped()]
        expect(os.path.realpath(library.path()) in files, f"mapped: {files}")
        return f"version {nccl.get_version()}, mapped {' '.join(sorted(set(files)))}"

    def all_reduce():
        each(lambda d, comm: comm.allReduce(arrays[d].data.ptr, outs[d].data.ptr, arrays[d].size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, null))
        for d in range(n):
            with cupy.cuda.Device(d):
                wanted = n * cupy.arange(100_003, dtype=cupy.float32) + n * (n - 1) / 2
                expect(bool((outs[d] == wanted).all()), f"wrong sum on GPU {d}")

    def broadcast():
        each(lambda d, comm: comm.broadcast(arrays[d].data.ptr, outs[d].data.ptr, arrays[d].size, nccl.NCCL_FLOAT32, n - 1, null))
        for d in range(n):
            with cupy.cuda.Device(d):
                expect(bool((outs[d] == cupy.arange(100_003, dtype=cupy.float32) + (n - 1)).all()), f"wrong values on GPU {d}")

    def send_recv():
        def act(d, comm):
            comm.send(arrays[d].data.ptr, arrays[d].size, nccl.NCCL_FLOAT32, (d + 1) % n, null)
            comm.recv(outs[d].data.ptr, outs[d].size, nccl.NCCL_FLOAT32, (d - 1) % n, null)

        each(act)
        for d in range(n):
            with cupy.cuda.Device(d):
                expect(bool((outs[d] == cupy.arange(100_003, dtype=cupy.float32) + (d - 1) % n).all()), f"wrong values on GPU {d}")

    for check in (mapped, all_reduce, broadcast, send_recv):
        report.run(check.__name__.replace("_", "-"), check)
    for comm in comms:
        comm.destroy()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
