"""The causes of wrong values that only a whole training has.

Their meaning follows the name of a value, such as `gradient of up.weight`.
"""

from typing import Final

from syncverify.judge.causes.of_values import LAST_MICRO_BATCH, LISTED, WEIGHTED
from syncverify.judge.violation import Mistake, Mistakes, Words

_ONE_NORM: Final = "clip the parameters' gradients on all ranks by one norm"
# fmt: off
OF_TRAININGS: Final[Mistakes] = {
    "terms_weighted": Mistake("the term {counts} what it should{number}",
        "divide each term of the loss by its own count"),
    "uses_weighted": Mistake("{uses}{number}",
        "let the backward pass of each use add its part once"),
    "mixed_up": Mistake("right gradients are at wrong parameters: {sums}",
        "return gradients in the order of the inputs from each backward() of a custom function; "
        "look where a buffer of gradients is cut into those of parameters"),
    "ranks_scaled": Mistake("multiplied {by}",
        "multiply by the same number on all ranks; look for code that depends on the rank"),
    "weighted": Mistake("parts of the batch count wrongly ({weights} times the right weights)",
        LISTED,
        cases={
            "are_equal": Words(
                "each part of the batch weighs the same, whatever its size: a mean of means "
                "({weights} times the right weights)",
                "divide the sum of all tokens' losses by the number of all tokens"),
        }),
    "micro_batches_weighted": Mistake(WEIGHTED, LAST_MICRO_BATCH,
        cases={
            "is_repeated": Words("",
                "divide, or reduce, once per step: after the last micro-batch, and not all that "
                "was added so far after each one"),
        }),
    "added_bias": Mistake(
        "each rank of {axes} adds {names}, and the ranks' results are summed afterwards",
        "add {names} once: after the sum over {axes}, or on one rank"),
    "own_parts": Mistake(
        "a sum over the ranks' own parts of the batch; the loss of the whole batch is no such "
        "sum, as with a batch norm",
        "let ranks share the statistics, as SyncBatchNorm does, or mean this function"),
    "not_a_number": Mistake("{ranks} and one rank differ in where NaN or infinity is", LISTED),
    "copies_rounded_apart": Mistake(
        "copies differ over {axes}, and are right within rounding: they drift apart",
        "give all ranks the same bits: let an owner keep the value that it sends, in the dtype "
        "in which it sends it, and let all ranks add in one order"),
    "ranks_differ": Mistake("other values on {ranks}; copies differ over {axes}", LISTED,
        cases={
            "START": Words("",
                "give all ranks the same values: build with one seed, or broadcast them"),
            "NORM": Words("", "let all ranks of {axes} use one norm: all-reduce its squares"),
        }),
    "norm": Mistake("adds once a rank the squares of {names} over {axes}",
        "count the squares of one rank of {axes} alone",
        cases={
            "is_missing": Words("does not add the squares of {names} over {axes}",
                "all-reduce the squares over {axes} by SUM before the root"),
        }),
    "norm_of_one_rank": Mistake("adds the squares of {names} of one rank of {axes} alone",
        "count all ranks' parts: they are no copies of one another over {axes}"),
    "norm_of_norms": Mistake("is {how} over {axes}",
        "all-reduce the sum of squares over {axes} by SUM, and divide nothing, before the root"),
    "norm_without": Mistake("leaves out {names}", "add the squares of {names}"),
    "not_clipped": Mistake("the coefficient {coefficient} of clipping is not applied", _ONE_NORM),
    "other_coefficient": Mistake("clipped by a coefficient different from {expected} ({each})",
        _ONE_NORM),
    "coefficient_of_a_norm": Mistake(
        "clipped by a coefficient different from {expected} ({each}): the norm {norm}",
        "{remedy}"),
    "clamped": Mistake("each element is cut off at {limit}",
        "compare with your own step: leave out `loss`"),
    "not_updated": Mistake("the optimizer of {ranks} does not have it, or leaves it as it was",
        "give these parameters to the optimizer"),
    "otherly_frozen": Mistake("trained on {ranks}, and frozen on one rank",
        "give each parameter of parallelize() the requires_grad that build() gives it",
        cases={
            "are_frozen": Words("frozen on {ranks}, and trained on one rank", ""),
        }),
    "other_option": Mistake(
        "updated with {name} {value}, and with {expected} on one rank{number}",
        "give the optimizer the same options on ranks as on one rank",
        cases={
            "is_left": Words(
                "the learning rate stays at {value}, and the schedule of one rank sets "
                "{expected}: step() takes no `schedule`",
                "let step() take `schedule`, and call schedule.step() after the optimizer's step"),
        }),
    "decided": Mistake("differs on {ranks} from one rank, which made {expected}",
        "let all ranks decide together: all-reduce what was found before the step"),
    "not_loaded": Mistake("is as in a new training: the checkpoint lacks it, or it is not loaded",
        "save and load it: {held}"),
    "parts_misplaced": Mistake("parts are at wrong places: the right parts {order} in this order",
        "save whole tensors, or the place of each part; split them by the new mesh",
        cases={
            "is_one_part": Words("all {count} parts are copies of part {first}",
                "save the part of each rank, and not of one"),
        }),
    "not_continued": Mistake(
        "differs after loading; the optimizer's state of tensors that are no parameters was not "
        "compared",
        "save and load each rank's own state of the optimizer, and what the step keeps",
        cases={
            "is_all_compared": Words("differs after loading, though all that was loaded is right",
                "save what the step keeps beside them: a counter, a schedule, a sampler"),
        }),
}
