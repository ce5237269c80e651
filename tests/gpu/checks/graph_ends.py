"""Ends of communicators and of the graphs with their calls, in every order, also while graphs run; and two communicators' graphs in turns.

What holds is decision 0020: a graph can be launched, and is right, whatever has become of its communicator, unless that was aborted; then
its launches end at once, with whatever results. Nothing waits for graphs, and nothing is lost once they are gone.
"""
import time

from checks.report import expect

ENDS = ("destroy", "finalize", "abort")
USES = ("idle", "later", "running")  # what a graph does when the communicator ends, or after it
CALLS = 10         # in a graph
RUNS = 20          # launches of one that is to run: with calls of half a buffer more than 5 ms
END_S = 2.0        # of ncclCommDestroy, which waits for what runs
ABORT_S = 0.1      # of ncclCommAbort
LOST_BYTES = 2 << 20  # one unit of the driver's memory
PASSES = 6         # behind the first
OWN = ("pipes", "windows", "boards", "kernels")


def end_one(world, comm, end):
    """How long it took, in seconds."""
    begun = time.monotonic()
    if end == "abort":
        world.lib.abort(comm)
    else:
        if end == "finalize":
            world.lib.call("ncclCommFinalize", comm, comm=comm)
        world.lib.destroy(comm)
    return time.monotonic() - begun


def end_all(world, comms, end):
    took = max(end_one(world, comm, end) for comm in comms)
    most = ABORT_S if end == "abort" else END_S
    expect(took < most, f"{end} took {1000 * took:.0f} ms")
    return took


def cell(world, meeting, end, use, graph_goes_first):
    """One communicator, one graph. How long the end took."""
    count = world.local[0].most // 16
    comms = world.create()
    world.fill(count)
    graphs = world.capture(lambda: [world.double(comms, count) for _ in range(CALLS)])
    for rank, graph in zip(world.local, graphs):
        graph.prepare(rank.stream)
    world.meet(meeting)  # from here on no call of another rank is needed
    launched = RUNS if use == "running" else 1
    for _ in range(launched):
        world.replay(graphs)
    if use != "running":
        world.wait()
        world.healthy(comms)
        world.meet(meeting)  # an abort would cut short what peers have not ended
    if graph_goes_first:
        destroy(graphs)
    took = end_all(world, comms, end)
    if use == "later":
        world.replay(graphs)
        launched += 1
    world.wait()
    if end != "abort" or use == "idle":
        world.demand(count, float(world.size ** (CALLS * launched)), "at the end")
    if not graph_goes_first:
        destroy(graphs)
    world.clean()
    return took


def destroy(graphs):
    for graph in graphs:
        graph.destroy()


def level(world):
    """What a communicator has of each GPU, and what is free there, when all that was kept for graphs has come back: it does when others
    come and go, on all ranks."""
    time.sleep(0.1)  # a graph is gone for the library when the driver has called it, on a thread of its own
    for _ in range(2):
        world.destroy(world.create())
    comms = world.create()
    world.fill(1)
    world.double(comms, 1)
    world.wait()
    memory = [world.lib.memory(comm) for comm in comms]
    world.destroy(comms)
    return [{name: told[name] for name in OWN} for told in memory], [rank.device.free_bytes() for rank in world.local]


def cells(world, meeting, end):
    """Every cell of one end of communicators. How many, and how long the slowest end took."""
    slowest, count = 0.0, 0
    for use in USES:
        for graph_goes_first in (True, False) if use != "later" else (False,):
            try:
                slowest = max(slowest, cell(world, meeting, end, use, graph_goes_first))
            except Exception as error:
                first = "graph" if graph_goes_first else "communicator"
                raise AssertionError(f"{end}, graph {use}, {first} goes first: {type(error).__name__}: {error}") from error
            count += 1
    return count, slowest


def ends(world, end):
    """Every cell of one end of communicators, until nothing more is held after a pass than after the one before. What the driver takes for
    itself it takes once, whenever that is (10 MiB in one run of three on H200); what is lost with each communicator is lost in every pass."""
    meeting = world.create()
    world.meet(meeting)
    count, slowest = cells(world, meeting, end)
    own, free = level(world)
    taken = []  # bytes of the GPU that has lost most, by pass
    while not taken or (world.most_of(meeting, taken[-1]) > LOST_BYTES and len(taken) < PASSES):
        _, took = cells(world, meeting, end)
        slowest = max(slowest, took)
        own_then, free_then = level(world)
        grown = any(now[name] > then[name] for now, then in zip(own_then, own) for name in OWN)
        expect(not grown, f"a communicator has {own_then} after all that, and had {own}")
        taken.append(max(then - now for then, now in zip(free, free_then)))
        free = free_then
    world.destroy(meeting)
    expect(taken[-1] <= LOST_BYTES, f"with {count} communicators and graphs each time, bytes of a GPU are gone: {taken}")
    return f"{count} cells, {end} took {1000 * slowest:.1f} ms at most, lost in each pass behind the first: {taken} bytes"


def abort_of_one_that_waits(world):
    """The graph of rank 0 waits for ranks that do not launch theirs; an abort ends it, and all launches that follow."""
    meeting, comms = world.create(), world.create()
    world.meet(meeting)
    count = 1000
    world.fill(count)
    graphs = world.capture(lambda: [world.double(comms, count) for _ in range(CALLS)])
    world.replay(graphs)
    world.wait()
    world.meet(meeting)
    first = world.local[0]
    if first.rank == 0:
        graphs[0].launch(first.stream)
        time.sleep(0.1)
        expect(not first.device.is_idle(first.stream), "the graph of rank 0 has not waited")
    world.meet(meeting)
    took = end_all(world, comms, "abort")
    world.wait()
    for _ in range(3):
        world.replay(graphs)
        world.wait()
    destroy(graphs)
    world.clean()
    world.destroy(meeting)
    again = world.create()
    world.fill(count)
    world.double(again, count)
    world.wait()
    world.demand(count, float(world.size), "on the next communicator")
    world.destroy(again)
    return f"abort took {1000 * took:.1f} ms"


def interleaved(world):
    """A graph of each of two communicators, on a buffer each, in turns with each other and with calls, on two streams that they change;
    then one communicator ends, and its graph does not."""
    pairs = [(world.create(), "source"), (world.create(), "target")]
    count, calls, rounds = 4096, 3, 30
    world.fill(count)
    for rank in world.local:
        rank.device.copy(rank.target, rank.source, 8 * count, rank.stream)
        rank.device.synchronize(rank.stream)
    made = [0, 0]

    def double(which, stream):
        comms, buffer = pairs[which]
        world.double(comms, count, stream, buffer)

    graphs = [world.capture(lambda which=which: [double(which, stream) for _ in range(calls)], stream=stream)
              for which, stream in enumerate(("stream", "other"))]
    for which, stream in enumerate(("stream", "other")):
        for rank, graph in zip(world.local, graphs[which]):
            graph.prepare(getattr(rank, stream))

    def launch(which, stream):
        world.replay(graphs[which], stream)
        made[which] += calls

    def call(which, stream):
        double(which, stream)
        made[which] += 1

    most = 900 // (world.size.bit_length() * (3 * calls + 2))  # what a double holds
    for number in range(min(rounds, most)):
        one, two = ("stream", "other") if number % 2 else ("other", "stream")
        launch(0, one)
        launch(1, two)
        call(1, two)
        launch(1, one)
        launch(0, two)
        call(0, one)
        launch(0, one)
        launch(1, two)
        call(0, two)
        call(1, one)
    world.wait()
    world.healthy(pairs[0][0] + pairs[1][0])
    world.destroy(pairs[0][0])
    for which, stream in ((1, "other"), (0, "other"), (1, "stream"), (0, "stream")):
        launch(which, stream)
    world.wait()
    destroy(graphs[0])
    launch(1, "other")
    call(1, "stream")
    world.destroy(pairs[1][0])
    launch(1, "stream")
    world.wait()
    for which, (_, buffer) in enumerate(pairs):
        world.demand(count, float(world.size ** made[which]), f"of communicator {which}", buffer)
    destroy(graphs[1])
    world.clean()
    return f"{sum(made)} calls"
