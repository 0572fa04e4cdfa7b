"""The in-process sampler: a Hugging Face causal model answers prompts (ground floor: imports nothing of ours).

Axis legend: ``[prompt][sample]``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from selfevolve.sampling.decoding import Completion, Decoder
from selfevolve.sampling.protocol import FinishReason, Prompt, Reply, Sampling
from selfevolve.sampling.weights import refuse_pickled, warn_remote_code

logger = logging.getLogger(__name__)

_TAIL = 12  # tokens at the end of a prompt that can hold the mark of a thinking block
_WORDS = "selfevolve-words-here"  # found again in what a template renders
_OPENING = re.compile(r"<think(?:ing)?>\s*\Z", re.IGNORECASE)


class PromptFormat(StrEnum):
    """How a conversation becomes tokens; decided once, when the sampler is made."""

    CHAT = "chat"  # the tokenizer's chat template, with its mark that the reply begins
    PLAIN = "plain"  # the turns' contents, joined by blank lines


class Formatter:
    """Turns prompts into token ids, always in the same way: in training, sampling and evaluation."""

    def __init__(self, tokenizer: Any, template_options: dict[str, Any] | None = None) -> None:
        """Decide the format: chat where the tokenizer has a template, else plain.

        Args:
            tokenizer: a tokenizer of transformers.
            template_options: further variables for the chat template (for example ``{"enable_thinking": False}``).
        """
        self.tokenizer = tokenizer
        self.template_options = dict(template_options or {})
        self.format = PromptFormat.CHAT if tokenizer.chat_template else PromptFormat.PLAIN
        self._opened: dict[tuple[int, ...], str] = {}  # by the end of a prompt

    def text(self, prompt: Prompt) -> str:
        """Return the text whose tokens are the prompt's."""
        if self.format is PromptFormat.PLAIN:
            return "\n\n".join(message.content for message in prompt)
        turns = [{"role": message.role, "content": message.content} for message in prompt]
        rendered: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, **self.template_options
        )
        return rendered

    def ids(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the token ids of each prompt.

        A template writes its own begin token, so none is added to it; a plain prompt gets the tokenizer's begin token,
        where it has one, and never an end token.
        """
        distinct = list(dict.fromkeys(prompts))
        if not distinct:
            return []
        plain = self.format is PromptFormat.PLAIN
        encoded = self.tokenizer([self.text(prompt) for prompt in distinct], add_special_tokens=plain)["input_ids"]
        if plain:
            ends = {self.tokenizer.eos_token_id, self.tokenizer.sep_token_id} - {None, self.tokenizer.bos_token_id}
            encoded = [ids[:-1] if ids and ids[-1] in ends else ids for ids in encoded]
        table = dict(zip(distinct, encoded, strict=True))
        return [table[prompt] for prompt in prompts]

    @cached_property
    def turn_end(self) -> int | None:
        """The control token that the chat template writes right behind an assistant's words, None without one.

        Base models come with a template and an end token that is not the template's: a policy that ends its turn as
        the template does would go on until the limit.
        """
        if self.format is PromptFormat.PLAIN:
            return None
        turns = [{"role": "user", "content": "-"}, {"role": "assistant", "content": _WORDS}]
        try:
            text = self.tokenizer.apply_chat_template(turns, tokenize=False, **self.template_options)
        except Exception:  # a template may refuse these turns, and raises what it likes
            return None
        behind = self.tokenizer(text.partition(_WORDS)[2], add_special_tokens=False)["input_ids"]
        control = {*self.tokenizer.all_special_ids, *self.tokenizer.get_added_vocab().values()}
        return behind[0] if behind and behind[0] in control else None

    def opened(self, prompt: Sequence[int]) -> str:
        """Return the mark of a thinking block that a prompt of token ids ends with, or "" where it opens none.

        Some templates write ``<think>`` themselves. It belongs before the text of the reply: else a thought that never
        ends reads as the answer, and a reply in the due form seems to lack its first tag.
        """
        tail = tuple(prompt[-_TAIL:])
        if tail not in self._opened:
            found = _OPENING.search(self.tokenizer.decode(list(tail))) if tail else None
            self._opened[tail] = found.group() if found else ""
        return self._opened[tail]


def end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return every id that ends a reply, sorted: of the model's generation config, the tokenizer, the chat template."""
    found: set[int] = set()
    for value in (model.generation_config.eos_token_id, model.config.get_text_config().eos_token_id):
        found.update([value] if isinstance(value, int) else value or [])
    if tokenizer.eos_token_id is not None:
        found.add(tokenizer.eos_token_id)
    if (end := Formatter(tokenizer).turn_end) is not None:
        found.add(end)
    if not found:
        raise ValueError("neither the model nor the tokenizer names an end token; set eos_token in the tokenizer")
    return tuple(sorted(found))


@contextmanager
def quiet_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars of its own into the terminal."""
    from transformers.utils import logging as library

    shown = library.is_progress_bar_enabled()
    library.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            library.enable_progress_bar()


def _load(path: str | Path, device: str | None, dtype: torch.dtype | None, trusted: bool) -> Any:
    from transformers import AutoModelForCausalLM

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if dtype is None:  # float32 is as fast as bfloat16 on CPUs, and exact
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
    with quiet_bars():
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(path), dtype=dtype, trust_remote_code=trusted, use_safetensors=True
        )
    return model.to(device).eval()


class TransformersSampler:
    """Answer prompts with a causal language model held in this process.

    The same seed, prompts and model give the same replies, whatever ``batch`` is; see `selfevolve.sampling.decoding`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        name: str | None = None,
        batch: int = 512,
        device: str | None = None,
        dtype: torch.dtype | None = None,
        max_prompt_tokens: int | None = None,
        template_options: dict[str, Any] | None = None,
        prefill_tokens: int | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        """Load or keep the model, and decide the prompt format.

        Args:
            model: a folder or hub id, or a loaded causal model of transformers (kept as it is, on its device).
            tokenizer: a folder or hub id, or a tokenizer; None: the one in the model's folder.
            name: shown in records; None: the model's path or type.
            batch: replies decoded at once.
            device: where a model given by path goes; None: a GPU if there is one.
            dtype: its number type; None: float32 on a CPU, bfloat16 elsewhere.
            max_prompt_tokens: a longer prompt is answered by an ERROR reply; None: what the model's context leaves.
            template_options: further variables for the chat template.
            prefill_tokens: prompt tokens read at once; None: 2048 on a CPU, 32768 elsewhere.
            trust_remote_code: run code that the model's repository carries.

        Raises:
            ValueError: a loaded model without a tokenizer, or a folder whose weights are pickled.
        """
        by_path = isinstance(model, (str, Path))
        if tokenizer is None and not by_path:
            raise ValueError("a loaded model came without a tokenizer; pass tokenizer=")
        if by_path:
            refuse_pickled(model)
            if trust_remote_code:
                warn_remote_code(model)
        if tokenizer is None or isinstance(tokenizer, (str, Path)):
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(str(tokenizer or model), trust_remote_code=trust_remote_code)
        self.name = name or (str(model) if by_path else type(model).__name__)
        self.model = _load(model, device, dtype, trust_remote_code) if by_path else model
        self.tokenizer = tokenizer
        self.formatter = Formatter(tokenizer, template_options)
        self.format = self.formatter.format
        self.max_prompt_tokens = max_prompt_tokens
        self.end_ids = end_ids(self.model, tokenizer)
        pad = tokenizer.pad_token_id
        self.decoder = Decoder(self.model, self.end_ids[0] if pad is None else pad, self.end_ids, batch, prefill_tokens)
        logger.info("%s: prompts in %s format, replies end at ids %s", self.name, self.format.value, self.end_ids)

    def prompt_ids(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Return the token ids of each prompt, in the sampler's one format."""
        return self.formatter.ids(prompts)

    def sample_ids(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, keys: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        """Return ``sampling.n`` completions of token ids for each prompt of token ids; axes ``[prompt][sample]``.

        Args:
            prompts: token ids, at least one each, and none over `prompt_limit`.
            sampling: how tokens are drawn.
            keys: what the random numbers of each prompt hang on, in place of its position in the list; processes that
                share a list of prompts pass positions in the whole list.
        """
        limit = self.prompt_limit(sampling)
        for prompt in prompts:
            reason = self._refusal(len(prompt), limit)
            if reason is not None:
                raise ValueError(reason)
        return self.decoder.decode(prompts, sampling, keys)

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` replies for each prompt, in order; axes ``[prompt][sample]``.

        A prompt that is empty or too long is never cut: its replies have finish reason ERROR and say why.
        """
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `sample` does; random numbers hang on a key a prompt in place of its position."""
        ids = self.prompt_ids(prompts)
        limit = self.prompt_limit(sampling)
        refusals = [self._refusal(len(prompt), limit) for prompt in ids]
        good = [i for i, refusal in enumerate(refusals) if refusal is None]
        if sampling.temperature == 0 and sampling.n > 1:
            logger.warning("%s: %d replies a prompt at temperature 0 are %d copies", self.name, sampling.n, sampling.n)
        completions = dict(
            zip(good, self.sample_ids([ids[i] for i in good], sampling, keys=[keys[i] for i in good]), strict=True)
        )
        texts = self.texts([c for group in completions.values() for c in group])
        answers: list[list[Reply]] = []
        for i, refusal in enumerate(refusals):
            if refusal is not None:
                answers.append([Reply("", FinishReason.ERROR, len(ids[i]), 0, refusal)] * sampling.n)
                continue
            opened = self.formatter.opened(ids[i])
            answers.append([self._reply(c, opened + texts[c.ids], len(ids[i])) for c in completions[i]])
        return answers

    def prompt_limit(self, sampling: Sampling) -> int | None:
        """Return the longest prompt in tokens that leaves room for the reply, or None without a limit."""
        context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        limits = [self.max_prompt_tokens, None if context is None else context - sampling.max_tokens]
        known = [limit for limit in limits if limit is not None]
        return min(known) if known else None

    def _refusal(self, length: int, limit: int | None) -> str | None:
        if length == 0:
            return "the prompt has no tokens; give it at least one"
        if limit is not None and length > limit:
            return f"the prompt has {length} tokens, at most {limit} fit; shorten it or raise the limit"
        return None

    def texts(self, completions: Sequence[Completion]) -> dict[tuple[int, ...], str]:
        """Return the text of each distinct completion, special tokens left out."""
        distinct = list(dict.fromkeys(c.ids for c in completions))
        if not distinct:  # an empty list would be decoded as one empty text
            return {}
        decoded = self.tokenizer.batch_decode([list(ids) for ids in distinct], skip_special_tokens=True)
        return dict(zip(distinct, decoded, strict=True))

    @staticmethod
    def _reply(completion: Completion, text: str, prompt_tokens: int) -> Reply:
        reason = FinishReason.STOP if completion.stopped else FinishReason.LENGTH
        return Reply(text, reason, prompt_tokens, len(completion.ids))
