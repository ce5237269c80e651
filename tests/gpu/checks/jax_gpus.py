"""JAX collectives over all GPUs of one process.

usage: jax_gpus.py [--gpus N] [--seconds S] [--only NAME] [--cpu]
--cpu tries the program itself, on CPU devices.
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
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="")
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if options.cpu:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.gpus}"
        os.environ["JAX_PLATFORMS"] = "cpu"
    report = Report("jax", options.seconds, options.only)
    try:
        import jax
        import jax.numpy as jnp
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
    except ImportError as why:
        report.skip("all", f"no JAX: {why}")
        return report.finish()
    devices = jax.devices()[:options.gpus]
    n = len(devices)
    if not options.cpu and devices[0].platform != "gpu":
        report.skip("all", f"JAX sees no GPU: {devices}")
        return report.finish()
    mesh = Mesh(devices, ("d",))
    split, whole = PartitionSpec("d"), PartitionSpec()

    def over(act, outgoing=split):
        # Values differ between devices on purpose; whether they do is not JAX's to prove here.
        return jax.jit(jax.shard_map(act, mesh=mesh, in_specs=split, out_specs=outgoing, check_vma=False))

    def numbers(count):
        return jax.device_put(jnp.arange(n * count, dtype=jnp.float32), NamedSharding(mesh, split))

    def demand(got, wanted, what):
        expect(got.shape == wanted.shape and bool((jax.device_get(got) == jax.device_get(wanted)).all()), f"{what}: wrong values")

    def psum():
        for count in (1, 1000, 1 << 20):
            x = numbers(count)
            demand(over(lambda v: jax.lax.psum(v, "d"), whole)(x), x.reshape(n, count).sum(0), f"{count} floats")

    def all_gather():
        x = numbers(1000)
        demand(over(lambda v: jax.lax.all_gather(v, "d", tiled=True), whole)(x), x, "all_gather")

    def reduce_scatter():
        x = numbers(1000 * n)
        demand(over(lambda v: jax.lax.psum_scatter(v, "d", tiled=True))(x), x.reshape(n, 1000 * n).sum(0), "psum_scatter")

    def permute():
        x = numbers(1000)
        around = [(i, (i + 1) % n) for i in range(n)]
        demand(over(lambda v: jax.lax.ppermute(v, "d", around))(x), jnp.roll(x.reshape(n, 1000), 1, 0).reshape(-1), "ppermute")

    def all_to_all():
        x = numbers(n * 10)
        wanted = x.reshape(n, n, 10).swapaxes(0, 1).reshape(-1)
        demand(over(lambda v: jax.lax.all_to_all(v, "d", 0, 0, tiled=True))(x), wanted, "all_to_all")

    def training():
        weights = jnp.zeros((16,))
        x = jax.device_put(jax.random.normal(jax.random.key(1), (64 * n, 16)), NamedSharding(mesh, split))
        y = x @ jnp.arange(16.0)

        @jax.jit
        def step(w):
            loss, gradient = jax.value_and_grad(lambda v: ((x @ v - y) ** 2).mean())(w)
            return w - 0.1 * gradient, loss

        for _ in range(200):
            weights, loss = step(weights)
        expect(float(loss) < 1e-3, f"the loss is {float(loss)}")

    def mapped():
        files = sorted({os.path.realpath(file) for file in library.mapped()})
        expect(options.cpu or os.path.realpath(library.path()) in files, f"mapped: {files}")
        return f"mapped {' '.join(files)}"

    for check in (psum, all_gather, reduce_scatter, permute, all_to_all, training, mapped):
        report.run(check.__name__.replace("_", "-"), check)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
