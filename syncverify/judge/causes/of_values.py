"""The causes that values of gradients show, of a scenario or of a training."""

from typing import Final

from syncverify.judge.violation import Circumstance, Mistake, Mistakes, Words

# A number of a training that is wrong by itself: nothing better is known than to look at it.
LISTED: Final = "compare the listed values with those of one rank"
LAST_MICRO_BATCH: Final = "keep the gradients of all micro-batches until the step: finish and clear them after the last one"
WEIGHTED: Final = "the micro-batches of a rank count {factors} times what they should"

# fmt: off
OF_GRADIENTS: Final[Mistakes] = {
    "still_partial": Mistake("the gradient is summed, and its placements still say Partial",
        "assign a DTensor with the parameter's placements to `.grad`"),
    "no_owner": Mistake("owner() is false on each rank",
        "return True from owner() on one rank of each set of replicas, the same rank in all steps"),
    "wrong_owner": Mistake("the right gradient is not on its owner",
        "reduce a parameter's gradient to the same rank in every step, its owner"),
    "wrong_type": Mistake(
        "a DTensor has an ordinary tensor as gradient, or an ordinary tensor has a DTensor",
        "assign a DTensor to the `.grad` of a DTensor, and an ordinary tensor to others"),
    "wrong_mesh": Mistake("the mesh of the gradient is different from that of its parameter",
        "assign a DTensor on the parameter's own `device_mesh`"),
    "wrong_placements": Mistake(
        "the placements of the gradient are different from those of its parameter",
        "assign a DTensor with the parameter's placements to `.grad`"),
    "wrong_strides": Mistake(
        "the strides of the gradient are different from those that torch alone gives it",
        "give `.grad` the parameter's strides, or make it contiguous"),
    "keeps_graph": Mistake("the gradient keeps a graph of autograd",
        "reduce under `torch.no_grad()`, or assign `gradient.detach()`"),
    "inference_tensor": Mistake("the gradient was made in inference mode",
        "reduce under `torch.no_grad()` rather than `inference_mode()`"),
    "replicas_differ": Mistake("replicas of one parameter have different gradients",
        "reduce over every mesh axis on which the parameter is Replicate, and give each rank the "
        "value that the others receive, to the bit"),
    "frozen_received_gradient": Mistake("a parameter with requires_grad=False has a gradient",
        "leave parameters with requires_grad=False out of buckets"),
    "gradient_missing": Mistake("`.grad` is None after wait()",
        "leave the reduced gradient in `.grad` after wait()",
        cases={
            "is_of_training": Words("none, or zeros, on {ranks}", LISTED),
        }),
    "wrong_shape": Mistake("the shape of the gradient is different from that of its parameter",
        "give every gradient the local shape of its parameter"),
    "wrong_dtype": Mistake(
        "the dtype of the gradient is different from the one that its parameter requires",
        "accumulate and reduce in the gradient's dtype, `param.grad_dtype` if set"),
    "not_finite": Mistake("Inf or NaN where the right gradient is finite",
        "clear buffers before their first use, and scale before sums overflow", is_of_value=True),
    "overflow_hidden": Mistake("a finite number where a contribution is Inf or NaN",
        "keep Inf and NaN: the training program needs them to skip the step"),
    "never_written": Mistake("the gradient is all zeros",
        "accumulate into the very memory that `.grad` shows after wait()", is_of_value=True),
    "erased": Mistake("the gradient was there, and was cleared or multiplied by 0",
        "clear gradients in zero_grad() only, and check the factors that multiply them"),
    "view_lost": Mistake("`.grad` no longer lies in the memory that is reduced",
        "in every backward, check that `.grad` is the view, and copy it back if not"),
    "hook_too_early": Mistake("a hook sends or reads `.grad` before autograd has added to it",
        "register the hook with `register_post_accumulate_grad_hook`: a hook of `register_hook` "
        "or `register_prehook` runs before autograd adds to `.grad`",
        shows=Circumstance.IN_TENSOR_HOOK),
    "not_reset": Mistake("a step was right, and an equal step after it reduced nothing",
        "reset counters and flags of a step in wait() or zero_grad(): the first step was right, "
        "and this one starts with the state that it left", shows=Circumstance.AFTER_RIGHT_STEP),
    "not_reduced": Mistake("no collective of that step with other ranks has the gradient",
        "launch every bucket, the last one too, over all ranks with replicas, before wait() "
        "returns"),
    "result_dropped": Mistake("the gradient was reduced, and the result is not in `.grad`",
        "copy the reduced values into the memory of `.grad`, or reduce that memory itself",
        is_of_value=True),
    "rank_contribution_missing": Mistake("contributions of some ranks are missing",
        "reduce every bucket, over every mesh axis on which its parameters are Replicate, and "
        "wait for it", is_of_value=True,
        cases={
            "is_of_training": Words("lacks the sum over {axes}{times}",
                "reduce these gradients over {axes}, or mark them as partial there"),
        }),
    "foreign_contribution": Mistake("ranks that hold other parts of the parameter contribute",
        "reduce only over mesh axes on which the parameter is Replicate; ordinary tensors stay "
        "local", is_of_value=True,
        cases={
            "right": Words("added over {axes}, and not over {right}{times}",
                "reduce these gradients over {right} alone"),
            "is_of_training": Words("added over {axes}{times}",
                "do not reduce these gradients: ranks own different parts"),
        }),
    "reduced_early": Mistake("the gradient was reduced before it was complete",
        "reduce once per step, after the last gradient of its bucket in the last micro-batch",
        is_of_value=True),
    "reduced_twice": Mistake("a sum over ranks was summed again",
        "launch each bucket once per step, over the ranks of each mesh axis or over those of all "
        "axes at once, and reset its state in zero_grad()"),
    "micro_batch_missing": Mistake("contributions of some micro-batches are missing",
        "add each micro-batch to the accumulated gradient, and clear it in zero_grad() only",
        is_of_value=True,
        cases={
            "is_of_training": Words(WEIGHTED, LAST_MICRO_BATCH),
        }),
    "contribution_doubled": Mistake("some contribution is counted twice",
        "reduce each gradient once per step, and never add to one already reduced",
        is_of_value=True),
    "placeholder_added": Mistake(
        "a gradient that a function has added to `main_grad` contains what the function returned",
        "drop the gradient that autograd brings where `grad_added_to_main_grad` is true",
        is_of_value=True),
    "scaled": Mistake("every element is multiplied by one factor",
        "reduce once, and do not divide or multiply: the contract promises the sum",
        is_of_value=True,
        cases={
            "of_means": Words("",
                "reduce once, and divide the sum once per step, by the number of ranks that "
                "contribute: the contract promises the mean"),
            "of_factors": Words("",
                "divide each gradient that has a replicated axis once by the declared factor, "
                "also on axes of one rank; others are not divided"),
            "is_scale_kept": Words("multiplied by the scale of the loss, {factor}",
                "unscale gradients before they are clipped or read"),
            "is_scale": Words("divided by the scale of the loss, {factor}",
                "multiply the loss by the scale, or leave gradients as they are"),
            "is_number": Words("multiplied by {factor}, {number}",
                "divide the loss, or the sum of gradients, by {number}"),
            "is_of_training": Words("{changed} by {factor}{and_number}",
                "{repair} by the right number; look where the divisor comes from"),
        }),
    "stale": Mistake("the gradient contains gradients of an earlier step",
        "clear the memory that is reduced, and point `.grad` at it again in zero_grad()",
        is_of_value=True,
        cases={
            "is_of_training": Words("still has the gradient of the step before",
                "call zero_grad() after each step"),
        }),
    "misplaced": Mistake("the gradient has the values of another parameter's gradient",
        "use the same bucket offset where a gradient is written and where it is read, and fill "
        "buckets in the same order on every rank", is_of_value=True),
    "unpacked_in_other_order": Mistake(
        "gradients are packed into a bucket in one order, and unpacked in another one",
        "walk the parameters of a bucket in the same order in both lines, such as by one list"),
    "buffer_shared": Mistake(
        "a bucket is packed into memory that the launch of an earlier bucket still needs",
        "make one buffer for each bucket, or copy the sums of the earlier bucket back before the "
        "next one is packed: a wait alone loses them"),
    "memory_shared": Mistake("two gradients lie in the same bytes",
        "give each parameter its own slice of a bucket, and count elements in one place only"),
    "rounded": Mistake("the gradient was summed in a narrower dtype",
        "accumulate and reduce in the gradient's dtype, on every leg of the reduction",
        is_of_value=True),
    "out_of_bound": Mistake("the gradient is farther off than rounding in its dtype can be",
        "send and sum gradients in their dtype, and each in its parameter's memory format",
        is_vague=True),
    "partly_wrong": Mistake("some elements are wrong",
        "check the offset and length of this parameter's slice in its bucket", is_vague=True),
    "miscounted": Mistake("contributions are counted too often or too rarely",
        "check how often each backward is reduced and accumulated", is_vague=True),
    "unexplained": Mistake("no known mistake gives this value",
        "compare the collectives above with those of a step that is right", is_vague=True,
        cases={
            "functions": Words(
                "differs; likely the backward of {functions} is wrong, as only gradients behind "
                "its inputs are",
                "compare the gradients that the backward of {functions} returns with autograd's"),
            "is_of_training": Words("differs, and no known mistake explains it", LISTED),
        }),
    "failure_hidden": Mistake("a collective failed, and no error came to the training program",
        "re-raise errors from `wait()`; nothing that a failed group sends is right"),
}
