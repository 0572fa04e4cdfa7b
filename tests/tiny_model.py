"""A random tiny causal model and a word tokenizer, made on the spot, for tests and benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = 392  # ordinary words w0 .. w391; with the special ones the vocabulary has 396 entries
SPECIAL = ("<pad>", "<eos>", "<end>", "<unk>")


def tiny_tokenizer(words: int = WORDS, chat: bool = True) -> Any:
    """Return a `PreTrainedTokenizerFast` of whole words ``w0 w1 ...``; its chat template joins the contents."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *(f"w{i}" for i in range(words))))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    if chat:
        tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return tokenizer


def tiny_model(
    words: int = WORDS, hidden: int = 96, layers: int = 3, seed: int = 0, spread: float = 1.0, **config: Any
) -> Any:
    """Return a random float32 `Qwen3ForCausalLM` for `tiny_tokenizer(words)`.

    ``spread`` multiplies the output head, so that the next-token distribution is far from uniform (1.0: nearly
    uniform; 30: peaked). Further keywords go to ``Qwen3Config``.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": words + len(SPECIAL),
        "hidden_size": hidden,
        "intermediate_size": 3 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": None,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**(settings | config))).to(torch.float32).eval()
        with torch.no_grad():
            model.lm_head.weight.mul_(spread)
    model.generation_config.eos_token_id = model.config.eos_token_id
    model.generation_config.pad_token_id = model.config.pad_token_id
    return model


def save_tiny(folder: Path, **settings: Any) -> Path:
    """Write a tiny model and its tokenizer as a plain Hugging Face folder, and return the folder."""
    words = settings.get("words", WORDS)
    tiny_model(**settings).save_pretrained(folder)
    tiny_tokenizer(words).save_pretrained(folder)
    return folder
