"""The causes that calls, their order and their ends show, in the order of a report."""

from typing import Final

from syncverify.judge.violation import Circumstance, Mistake, Mistakes

# fmt: off
OF_RUNS: Final[Mistakes] = {
    "raised": Mistake("the subject raised on a program that its contract covers",
        "the training program is legal: pass this line the right value, or make it accept this "
        "value"),
    "process_died": Mistake("a rank's process ended by itself",
        "run the replay line with --backend sim to see the Python error, if any"),
    "unclear_error": Mistake("an error names neither the mistake nor its repair",
        "raise an error that names the caller's mistake and its repair; a bare Python error, "
        "such as a KeyError, names neither"),
    "deadlock": Mistake("ranks wait for each other, and none can go on",
        "issue the same collectives in the same order on every rank of a group"),
    "never_returns": Mistake("a rank keeps its turn, or waits for something that no rank brings",
        "end every wait by an event of this step, and every loop by a bound"),
    "step_bound": Mistake("a rank polls for something that does not come",
        "poll only for work that every rank does in this step, or wait instead"),
    "groups_differ": Mistake("ranks make different groups, or make them in different orders",
        "let each rank call new_group() for each group, its own or not, in the same order; or "
        "pass use_local_synchronization=True, with which the members alone call it"),
    "collective_mismatch": Mistake("ranks call one collective with different arguments",
        "issue the same collectives, with the same sizes and in the same order, on every rank: "
        "in no branch of one rank, and not in the order of a set, of id() or of a hash",
        shows=Circumstance.OTHER_CONTENTS),
    "uneven_shards": Mistake(
        "ranks make a DTensor of shards of different sizes as if they were equal",
        "pass `shape=` and `stride=` of the whole tensor to `DTensor.from_local`, the same on "
        "every rank: without them it takes all shards for equal"),
    "collective_missing": Mistake("a rank issues fewer collectives than its peers",
        "issue every collective on all ranks of its group, or on none"),
    "rank_left_no_dump": Mistake("a rank of a group that waits left no dump",
        "look at the log of that rank: its process may have ended before the others waited"),
    "groups_mixed": Mistake("one bucket has gradients that belong to several groups of ranks",
        "keep gradients in one bucket only if they are reduced over the same ranks: make the "
        "group a part of the key of buckets", shows=Circumstance.OTHER_CONTENTS),
    "buckets_differ": Mistake("ranks divide the same parameters into different buckets",
        "fill buckets in the same order and to the same sizes on all ranks: not in the order of "
        "a set, of id() or of a hash, and not by bytes that only one rank has",
        shows=Circumstance.OTHER_CONTENTS),
    "bucket_mismatch": Mistake("one place of a bucket holds different parameters on two ranks",
        "put the same parameters into the n-th bucket on every rank, used or not: not in the "
        "order of a set, of id() or of a hash", shows=Circumstance.OTHER_CONTENTS),
    "deadlock_hazard": Mistake(
        "ranks launch on several communicators in orders that exclude each other",
        "launch on all communicators in the same order on every rank"),
    "opposing_messages": Mistake("two ranks send to each other before either receives",
        "issue crossing messages with batch_isend_irecv, or receive first on one of the two ranks"),
    "reduced_before_accumulated": Mistake("a collective may start before the gradient is there",
        "before the launch, make its stream wait for every stream that wrote into the bucket"),
    "accumulated_unordered": Mistake("two streams write a gradient, and neither waits",
        "make the stream that prepares a bucket wait for the streams that accumulate into it"),
    "touched_in_flight": Mistake("memory is used while a collective may still use it",
        "make the next stream that uses this memory wait for the collective"),
    "collectives_overlap": Mistake("two collectives use the same memory, and neither waits",
        "wait for the first collective before the second one is launched on its memory"),
    "read_before_reduced": Mistake(
        "the training program may read a gradient before it is reduced",
        "in wait(), make the current stream wait for every reduction"),
    "zeroed_in_flight": Mistake("a gradient may be cleared while something still uses it",
        "clear on a stream that has waited for the reductions"),
    "used_before_zeroed": Mistake("a gradient may be used before it is cleared",
        "clear on the stream that accumulates, or make that stream wait"),
    "freed_in_use": Mistake("memory may be given out again while a stream uses it",
        "hold a reference until the stream of the pool has waited, or call record_stream()"),
    "read_unwritten": Mistake("memory is read that nothing has written since it was allocated",
        "fill the memory when it is allocated, or send it before it is read"),
    "gradient_left": Mistake("a gradient is not zero after zero_grad()",
        "in zero_grad(), clear the memory that `.grad` shows"),
    "over_cap": Mistake("a bucket is larger than its cap",
        "close a bucket before a gradient that would bring it over the cap; count bytes of local "
        "parts"),
    "hook_left": Mistake("a hook remains after unbind()",
        "keep the handles of all hooks, and remove them in unbind()",
        shows=Circumstance.AFTER_REBINDING,
        leads_to=('collective_after_unbind', 'backward_not_plain')),
    "buffer_left": Mistake("a gradient still lies in a bucket after unbind()",
        "set `.grad` to None, or to a copy, in unbind()", shows=Circumstance.AFTER_REBINDING),
    "parameter_changed": Mistake(
        "the value or requires_grad of a parameter is different from before",
        "do not change the values of parameters: change gradients only"),
    "replicas_left_unequal": Mistake(
        "replicas of some parameters were made equal, and others stayed unequal",
        "in bind(), broadcast each parameter from one rank of its group, or none"),
    "hook_lost": Mistake("unbind() removed a hook of the training program",
        "remove a hook by the handle that its registration returned, and no other"),
    "attribute_left": Mistake("a parameter keeps a tensor in an attribute after unbind()",
        "in unbind(), delete the attributes that bind() gave to parameters"),
    "parameters_joined": Mistake("parameters lie in one storage after unbind()",
        "in unbind(), give each parameter its own storage"),
    "setting_changed": Mistake("a default of torch or Python has changed after unbind()",
        "restore torch's defaults, with a context manager where there is one"),
    "generator_seeded": Mistake("the subject seeded a global generator of random numbers",
        "draw from your own `torch.Generator` or `random.Random`; do not seed a global generator"),
    "generator_rewound": Mistake("the subject set a global generator back to an earlier state",
        "save and restore the state in the same call, as `torch.random.fork_rng()` does; do not "
        "restore one from bind()"),
    "collective_after_unbind": Mistake("a collective was issued after unbind()",
        "remove all hooks in unbind()"),
    "backward_not_plain": Mistake("backward after unbind() is not that of torch alone",
        "in unbind(), restore all that bind() changed"),
    "piles_up": Mistake("objects of earlier steps are still held",
        "drop handles, copies and records of a step in wait() or zero_grad(), and make process "
        "groups once, in bind()"),
    "stream_changed": Mistake(
        "the current stream after a call is different from that before the call",
        "enter stream contexts with a `with` block, which leaves them"),
    "never_overlapped": Mistake("no reduction starts before the end of backward",
        "launch a bucket from the hook that sees its last gradient, not when backward ends"),
    "acts_otherwise": Mistake("a second run of the same program issues different collectives",
        "do not use the order of a set, id(), the clock or unseeded random numbers"),
    "sums_otherwise": Mistake("a second run of the same program has different gradients",
        "do not use the clock or unseeded random numbers in gradients"),
    "ends_otherwise": Mistake("a second run of the same program ends differently",
        "replay a few times: the failure depends on chance"),
}
