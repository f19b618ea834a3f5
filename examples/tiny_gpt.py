"""A small GPT over characters, how to cut it, and a text that it can learn offline."""

import codecs
import contextlib
import io
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

CONTEXT = 32  # characters in a sequence
NUM_BLOCKS = 2
WIDTH = 32
HEAD_WIDTH = 8


class Attention(nn.Module):
    """Causal attention over as many heads as its layers bring, all or a share of them."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.query_norm = nn.RMSNorm(HEAD_WIDTH)
        self.key_norm = nn.RMSNorm(HEAD_WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        heads = scaled_dot_product_attention(
            self.query_norm(query), self.key_norm(key), value, is_causal=True
        )
        return self.output(heads.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(gelu(self.up(self.mlp_norm(x))))


class GPT(nn.Module):
    """A language model over characters; its head is tied to its embedding."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary_size, WIDTH)
        self.positions = nn.Parameter(torch.randn(CONTEXT, WIDTH) / WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(NUM_BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary_size, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=WIDTH**-0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (B, T, V) for tokens (B, T)."""
        x = self.tokens(tokens) + self.positions
        return self.head(self.norm(self.blocks(x)))


# Column-wise layers hold a share of the outputs, and row-wise ones the matching share of
# the inputs, so between the two no rank needs what another has. The embedding and the
# head hold the same rows of one tied matrix.
TENSOR_PARALLEL_PLAN = {
    "tokens": RowwiseParallel(input_layouts=Replicate()),
    "blocks.*.attention.query": ColwiseParallel(),
    "blocks.*.attention.key": ColwiseParallel(),
    "blocks.*.attention.value": ColwiseParallel(),
    "blocks.*.attention.output": RowwiseParallel(),
    "blocks.*.up": ColwiseParallel(),
    "blocks.*.down": RowwiseParallel(),
    "head": ColwiseParallel(output_layouts=Replicate()),
}


def summed_loss(
    predict: Callable[[torch.Tensor], torch.Tensor], sequences: torch.Tensor
) -> torch.Tensor:
    """Return the summed loss of predicting every next character; sequences (B, T+1)."""
    logits = predict(sequences[:, :-1])
    return cross_entropy(
        logits.flatten(0, 1), sequences[:, 1:].flatten(), reduction="sum"
    )


def num_predictions(sequences: torch.Tensor) -> int:
    """Count what is predicted in sequences (B, T+1)."""
    return sequences[:, 1:].numel()


def zen() -> str:
    """Return a text that every Python brings along, and that importing it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13")


def batches(text: str, batch_size: int, num_steps: int) -> Iterator[torch.Tensor]:
    """Draw batches of sequences (B, T+1) from a text, on all ranks alike."""
    vocabulary = sorted(set(text))
    codes = torch.tensor([vocabulary.index(character) for character in text])
    sequences = codes.unfold(0, CONTEXT + 1, 1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(num_steps):
        chosen = torch.randint(len(sequences), (batch_size,), generator=generator)
        yield sequences[chosen]


def make_model(text: str) -> GPT:
    """Build a model of a text with the same weights on each call and each rank."""
    torch.manual_seed(0)
    return GPT(vocabulary_size=len(set(text))).double()
