"""Data-parallel training of a small network on handwritten digits: 64 inputs, 32 hidden units, 10 classes.

Every rank holds the whole model and a share of each batch. Gradients are summed over the ranks, so that all of them take the same step, the
one that a single rank with the whole batch would take.

    python3 train.py                                alone
    tutti run -n 4 -- python3 train.py              four processes
    python3 train.py --threads 4                    four ranks as threads of one process
"""
import argparse
import json
import os
import threading

import numpy
from sklearn.datasets import load_digits

import nccl

HIDDEN, CLASSES = 32, 10
BATCH = 240  # of all ranks together; divides among 1 to 6, 8, 10 and 12 ranks
TESTED = 297  # of 1797 images


def load():
    """Images with pixels in 0..1, in a fixed random order: (training images, labels), (test images, labels)."""
    digits = load_digits()
    order = numpy.random.default_rng(1).permutation(len(digits.target))
    images = (digits.data[order] / 16).astype(numpy.float32)
    labels = digits.target[order]
    return (images[TESTED:], labels[TESTED:]), (images[:TESTED], labels[:TESTED])


class Model:
    """The parameters lie in one array, and so do the gradients: one all-reduce a step."""

    def __init__(self, inputs):
        shapes = [(inputs, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
        self.parameters = numpy.zeros(sum(int(numpy.prod(shape)) for shape in shapes), numpy.float32)
        self.gradients = numpy.zeros_like(self.parameters)
        self.w1, self.b1, self.w2, self.b2 = self._views(self.parameters, shapes)
        self.dw1, self.db1, self.dw2, self.db2 = self._views(self.gradients, shapes)

    @staticmethod
    def _views(flat, shapes):
        ends = numpy.cumsum([int(numpy.prod(shape)) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(numpy.split(flat, ends[:-1]), shapes)]

    def initialise(self, seed):
        random = numpy.random.default_rng(seed)
        for weights in (self.w1, self.w2):
            weights[:] = random.normal(0, numpy.sqrt(2 / weights.shape[0]), weights.shape)

    def forward(self, images):
        hidden = numpy.maximum(images @ self.w1 + self.b1, 0)
        scores = hidden @ self.w2 + self.b2
        scores -= scores.max(axis=1, keepdims=True)
        exponents = numpy.exp(scores)
        return hidden, exponents / exponents.sum(axis=1, keepdims=True)

    def learn(self, images, labels):
        """The summed loss of the images; their summed gradients in self.gradients."""
        hidden, probabilities = self.forward(images)
        rows = numpy.arange(len(labels))
        loss = -numpy.log(probabilities[rows, labels]).sum()
        probabilities[rows, labels] -= 1  # now the gradient of the scores
        self.dw2[:] = hidden.T @ probabilities
        self.db2[:] = probabilities.sum(axis=0)
        back = (probabilities @ self.w2.T) * (hidden > 0)
        self.dw1[:] = images.T @ back
        self.db1[:] = back.sum(axis=0)
        return loss

    def accuracy(self, images, labels):
        return float((self.forward(images)[1].argmax(axis=1) == labels).mean())


def train(comm, steps, rate):
    """The loss of each step, and the accuracy on the test images; the same on every rank."""
    (images, labels), test = load()
    model = Model(images.shape[1])
    if comm.rank == 0:
        model.initialise(seed=7)
    comm.broadcast(model.parameters)
    share = BATCH // comm.ranks
    losses = []
    order = numpy.random.default_rng(3)  # the same on all ranks, and for any number of them
    for _ in range(steps):
        batch = order.choice(len(labels), BATCH, replace=False)
        mine = batch[comm.rank * share:(comm.rank + 1) * share]
        loss = numpy.array([model.learn(images[mine], labels[mine])], numpy.float64)
        comm.all_reduce(loss)
        comm.all_reduce(model.gradients)
        model.parameters -= numpy.float32(rate / BATCH) * model.gradients
        losses.append(float(loss[0]) / BATCH)
    return losses, model.accuracy(*test)


def run_rank(options, unique_id, rank, ranks, results):
    comm = nccl.Communicator(options.nccl, unique_id, rank, ranks)
    results[rank] = train(comm, options.steps, options.rate)
    comm.destroy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default="libnccl.so.2", help="the library: a path, or a name that the loader finds")
    parser.add_argument("--threads", type=int, default=0, help="ranks as threads of this process instead of processes")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.5, help="the learning rate")
    parser.add_argument("--json", help="write losses and accuracy to this file")
    options = parser.parse_args()
    options.nccl = nccl.Library(options.library)
    rank = 0 if options.threads else int(os.environ.get("RANK", "0"))
    ranks = options.threads or int(os.environ.get("WORLD_SIZE", "1"))
    if BATCH % ranks != 0:
        parser.error(f"a batch of {BATCH} cannot be divided among {ranks} ranks")

    results = {}
    if options.threads:
        unique_id = options.nccl.make_id()
        threads = [threading.Thread(target=run_rank, args=(options, unique_id, i, ranks, results)) for i in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if len(results) != ranks or any(result != results[0] for result in results.values()):
            raise SystemExit("the ranks do not agree")
    else:
        run_rank(options, nccl.exchange_id(options.nccl, rank), rank, ranks, results)
    if rank != 0:
        return
    losses, accuracy = results[0]
    print(f"{ranks} ranks: loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {options.steps} steps; "
          f"{100 * accuracy:.1f}% of {TESTED} test images right")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ranks": ranks, "losses": losses, "accuracy": accuracy}, file)


if __name__ == "__main__":
    main()
