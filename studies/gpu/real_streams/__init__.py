"""Simulated ranks on the real streams of one device.

Note [Races that show]
    Ranks are threads of one process, which take turns; the network between them is the
    simulator's. Streams, events, autograd and the allocator are torch's own, on one GPU.
    NCCL refuses two ranks on one GPU, and here no rank needs NCCL.

    A missing wait gives a wrong number only if the timing is bad. So a scenario is played
    once for each kind of stream: all work on streams of that kind is delayed by
    `torch.cuda._sleep`, while other streams run ahead. Memory that goes back to its pool is
    filled with NaN on the stream whose pool it is, before the next operator of its rank.

    Real: the order of work, of waits, and of reuse. Not real: a collective copies its inputs
    and writes its results as two pieces of work on the communicator's stream, and NCCL's
    kernel does both. The results are queued when the rank waits for the collective.

    Autograd runs on the thread of the rank, since all ranks would share the engine's one
    thread of the device, and a hook that waits there for another rank would wait for ever.
"""
