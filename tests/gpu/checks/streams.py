"""Calls on the streams that are there without being made and on those that are: each in the order of its stream. Part of graphs.py."""
from checks import cuda, nccl
from checks.report import expect
from checks.world import doubles

BUSY_BYTES, BUSY_COPIES = 64 << 20, 200  # of a GPU in front of a call: some 8 ms


def streams(world):
    """A call sees what the stream's work before it has written, and what comes behind it on the stream sees its result."""
    comms = world.create()
    half = world.local[0].most // 2
    count = half // 8
    made = [{"created": rank.device.stream(), "created blocking": rank.device.stream(waits_for_legacy=True)} for rank in world.local]
    handles = [{"NULL": 0, "legacy": cuda.LEGACY, "per-thread": cuda.PER_THREAD, **own} for own in made]
    scratch = [rank.device.allocate(2 * BUSY_BYTES) for rank in world.local]
    for rank in world.local:
        rank.handle = rank.stream

    def call():
        world.each(comms, lambda rank, comm: world.lib.all_reduce(rank.source, rank.target, count, nccl.FLOAT64, nccl.SUM, comm,
                                                                  rank.handle))

    call()  # what is loaded and opened for it would wait for the GPU
    world.wait()
    wanted = doubles(count, lambda i: float(sum((i + 1) * (r + 1) for r in range(world.size))))
    behind = 0
    for name in handles[0]:
        for rank, own in zip(world.local, handles):
            rank.handle = own[name]
            rank.device.write(rank.source, b"\xff" * half + doubles(count, lambda i, rank=rank: float((i + 1) * (rank.rank + 1))))
            rank.device.write(rank.target, bytes(2 * half))
        for rank, room in zip(world.local, scratch):
            for _ in range(BUSY_COPIES):
                rank.device.copy(room, room + BUSY_BYTES, BUSY_BYTES, rank.handle)
            rank.device.copy(rank.source, rank.source + half, half, rank.handle)
        call()
        behind += any(not rank.device.is_idle(rank.handle) for rank in world.local)
        for rank in world.local:
            rank.device.copy(rank.target + half, rank.target, half, rank.handle)
        for rank in world.local:
            rank.device.synchronize(rank.handle)
            for what, at in (("the call has not seen what was copied before it", 0), ("what was copied behind it is not the result", half)):
                expect(rank.device.read(rank.target + at, half) == wanted, f"stream {name}, rank {rank.rank}: {what}")
    expect(behind > 0, "the work before the calls was over before they were made, every time")
    in_turns(world, comms, handles, count)
    world.healthy(comms)
    world.destroy(comms)
    for rank, own, room in zip(world.local, made, scratch):
        for stream in own.values():
            rank.device.destroy_stream(stream)
        rank.device.free(room)
    return f"{len(handles[0])} streams, {behind} times behind work that was under way"


def in_turns(world, comms, handles, count):
    """Calls on one after the other, without waiting: a communicator keeps the order of its calls."""
    world.fill(count)
    rounds = 3
    for _ in range(rounds):
        for name in handles[0]:
            for rank, own in zip(world.local, handles):
                rank.handle = own[name]
            world.double(comms, count, "handle")
    for rank in world.local:
        rank.device.synchronize_all()
    world.demand(count, float(world.size ** (rounds * len(handles[0]))), "after calls on all streams in turns")
