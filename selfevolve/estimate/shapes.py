"""Shapes of language models: how many weights a token meets, and how large its keys and values are.

The shape comes from ``config.json`` of a local folder (a testbed backbone included), or from `KNOWN` for the hub ids of
the shipped recipes. Anything else raises `UnknownShape`: no shape is ever guessed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfevolve.backbones import resolve_backbone
from selfevolve.errors import UserError

# decoders of the Llama kind: grouped-query attention, a gated MLP of three matrices, nothing else of weight
PLAIN_KINDS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "smollm3")


class UnknownShape(UserError):
    """The shape of a model is not known here."""


@dataclass(frozen=True)
class Shape:
    """What the cost of a decoder hangs on; norms and biases, below 0.1% of the weights, are left out."""

    layers: int
    hidden: int
    heads: int  # of queries
    kv_heads: int  # of keys and values
    head_dim: int
    intermediate: int  # width of the gated MLP
    vocab: int
    tied: bool  # the output head is the embedding

    @property
    def layer(self) -> int:
        """Weights of one layer."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def body(self) -> int:
        """Weights of all layers."""
        return self.layers * self.layer

    @property
    def head(self) -> int:
        """Weights of the output head."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.body + self.head * (1 if self.tied else 2)

    def cache_bytes(self, number_bytes: int) -> int:
        """Return the bytes of one token's keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * number_bytes

    def lora(self, rank: int) -> int:
        """Return the weights of adapters on every linear layer but the head."""
        query, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        h, i = self.hidden, self.intermediate
        ends = [(h, query), (h, kv), (h, kv), (query, h), (h, i), (h, i), (i, h)]
        return self.layers * rank * sum(a + b for a, b in ends)


# Sources: config.json of each model on the hub; OctoThinker is Llama-3.2-3B trained further, with its shape. The sums
# agree with the model cards: 4.0B (3.6B without embeddings), 3.21B, 0.49B (0.36B), 1.54B (1.31B).
KNOWN = {
    "Qwen/Qwen3-4B-Base": Shape(36, 2560, 32, 8, 128, 9728, 151_936, tied=True),
    "OctoThinker/OctoThinker-3B-Hybrid-Base": Shape(28, 3072, 24, 8, 128, 8192, 128_256, tied=True),
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": Shape(24, 896, 14, 2, 64, 4864, 151_936, tied=True),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": Shape(28, 1536, 12, 2, 128, 8960, 151_936, tied=True),
}


def shape_of(model: str) -> Shape:
    """Return the shape of a model by its name in a recipe.

    Raises:
        UnknownShape: it is neither local nor among `KNOWN`, or of a kind that the formulas do not cover.
        UserError: a testbed backbone of that name is not shipped.
    """
    folder = Path(resolve_backbone(model))
    config = folder / "config.json"
    if config.is_file():
        return _read(json.loads(config.read_text(encoding="utf-8")), str(config))
    if model in KNOWN:
        return KNOWN[model]
    raise UnknownShape(
        f"the shape of {model!r} is not known here: it is no local folder with a config.json, and the table holds "
        f"{', '.join(KNOWN)}",
        "download the model and give its folder (backbone=FOLDER)",
    )


def _read(config: dict[str, Any], where: str) -> Shape:
    """Read a config of transformers."""
    c = config.get("text_config", config)
    kind = str(c.get("model_type", ""))
    if kind not in PLAIN_KINDS:
        raise UnknownShape(f"{where} is of type {kind!r}; the formulas cover {', '.join(PLAIN_KINDS)}")
    try:
        heads = int(c["num_attention_heads"])
        return Shape(
            layers=int(c["num_hidden_layers"]),
            hidden=int(c["hidden_size"]),
            heads=heads,
            kv_heads=int(c.get("num_key_value_heads") or heads),
            head_dim=int(c.get("head_dim") or c["hidden_size"] // heads),
            intermediate=int(c["intermediate_size"]),
            vocab=int(c["vocab_size"]),
            tied=bool(c.get("tie_word_embeddings", kind.startswith("gemma"))),
        )
    except KeyError as error:
        raise UnknownShape(f"{where} has no {error.args[0]!r}") from None
