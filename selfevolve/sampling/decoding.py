"""Batched decoding of token ids with a Hugging Face causal model (ground floor: imports nothing of ours).

The n samples of a prompt share its prefix: a prompt is prefilled once, its cache is copied to n rows, and the rows are
decoded together. Every random number is a function of (seed, prompt key, sample index, position), so the ids drawn do
not depend on how the prompts were batched, nor on the number of processes (up to float rounding in the model itself).

Shapes: R rows decoded at once (a row is one sample of one prompt), U unique prompts, L prompt tokens (left-padded),
T new tokens at most, V vocabulary, H key/value heads, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from selfevolve.sampling.drawing import choose, uniforms
from selfevolve.sampling.protocol import Sampling

_ROOM = 64  # positions by which a cache grows when it is full
_COMPACT_BELOW = 0.75  # finished rows leave the batch once fewer than this share are unfinished
_ATTENTION = "selfevolve_decode"  # name under which `_attend` is registered with transformers


@dataclass(frozen=True)
class Completion:
    """The new tokens of one sample."""

    ids: tuple[int, ...]  # new tokens, the end token included where the model wrote one
    stopped: bool  # True: an end token came; False: cut off at the limit


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """A cache layer that writes new positions in place into a buffer with room, instead of copying the whole cache."""

    def __init__(self, **_: Any) -> None:
        """Start empty."""
        super().__init__()
        self.length = 0
        self.buffers: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append the new positions and return views of all keys and values, shape (R, H, length, D)."""
        # autocast of float32 weights leaves keys in float32, which attention rounds at every step: kept as values are
        key_states = key_states.to(value_states.dtype)
        if not self.is_initialized:  # the prefill: kept as it comes, `spread` copies it to the rows
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values, self.length = key_states, value_states, key_states.shape[-2]
            return key_states, value_states
        end = self.length + key_states.shape[-2]
        if self.buffers is None or end > self.buffers[0].shape[-2]:
            self.spread(None, key_states.shape[-2] + _ROOM)
        assert self.buffers is not None
        keys, values = self.buffers
        keys[..., self.length : end, :] = key_states
        values[..., self.length : end, :] = value_states
        self.length, self.keys, self.values = end, keys[..., :end, :], values[..., :end, :]
        return self.keys, self.values

    def spread(self, rows: Tensor | None, room: int) -> None:
        """Keep the given rows (with repeats; None: all, in order) in a buffer with ``room`` free positions."""
        fresh: list[Tensor] = []
        assert self.keys is not None and self.values is not None
        for old in (self.keys, self.values):
            shape = (old.shape[0] if rows is None else len(rows), old.shape[1], self.length + room, old.shape[3])
            buffer = old.new_empty(shape)
            if rows is None:
                buffer[..., : self.length, :] = old
            else:  # `old[rows]` would copy the rows twice
                torch.index_select(old, 0, rows, out=buffer[..., : self.length, :])
            fresh.append(buffer)
        self.buffers = (fresh[0], fresh[1])
        self.keys, self.values = fresh[0][..., : self.length, :], fresh[1][..., : self.length, :]


def _attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend from one position a row without copying grouped keys to every query head; else as transformers' sdpa.

    transformers repeats keys and values for each query head once a mask is given. For small models on a CPU that costs
    more than the rest of a decoding step. On a GPU, where reading the cache bounds a step of long replies, four query
    heads a key head make it nine times as much traffic: one read, four times written, four times read.
    """
    rows, heads, positions, size = query.shape
    float_mask = attention_mask if attention_mask is not None and attention_mask.is_floating_point() else None
    if positions != 1 or scaling is None or float_mask is None or options.get("position_bias") is not None:
        attended: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return attended
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], size) * scaling
    weights = (torch.matmul(grouped, key.transpose(-1, -2)) + float_mask).softmax(
        -1, dtype=torch.promote_types(value.dtype, torch.float32)
    )
    return torch.matmul(weights.to(value.dtype), value).view(rows, 1, heads, size), None


AttentionInterface.register(_ATTENTION, _attend)
AttentionMaskInterface.register(_ATTENTION, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def only_full_attention(config: Any) -> bool:
    """Return True where every layer attends to all earlier positions (no sliding window, no recurrent state)."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return all(kind == "full_attention" for kind in kinds)
    return getattr(config, "sliding_window", None) is None


def ready_mask(config: Any) -> torch.dtype | None:
    """Return the type of a mask made once: bool or float (additive); None where transformers builds it each step."""
    if not only_full_attention(config):
        return None
    return {_ATTENTION: torch.float32, "eager": torch.float32, "sdpa": torch.bool}.get(config._attn_implementation)


@contextmanager
def decoding_mode(model: Any, fast_attention: bool = True) -> Iterator[None]:
    """Put the model into evaluation mode, with `_attend` in place of sdpa, and restore every module's mode after."""
    modes = [(module, module.training) for module in model.modules()]
    config = model.config.get_text_config()
    kept = config._attn_implementation
    fast = fast_attention and kept == "sdpa" and only_full_attention(config)
    fast = fast and not any(getattr(config, name, None) for name in ("attn_logit_softcapping", "num_kv_shared_layers"))
    model.eval()
    try:
        if fast:
            config._attn_implementation = _ATTENTION
        with torch.inference_mode():
            yield
    finally:
        if fast:
            config._attn_implementation = kept
        for module, mode in modes:
            module.training = mode


@dataclass(frozen=True)
class _Rows:
    """The rows of one batch, all arrays of shape (R,)."""

    prompt: NDArray[np.int64]  # index into the list of unique prompts
    place: NDArray[np.int64]  # index of the prompt in the caller's list
    sample: NDArray[np.int64]  # sample index


class Decoder:
    """Decodes lists of token ids with one model; see the module's docstring."""

    def __init__(
        self, model: Any, pad_id: int, end_ids: Sequence[int], batch: int, prefill_tokens: int | None = None
    ) -> None:
        """Keep the model.

        Args:
            model: a causal language model of transformers, on its device.
            pad_id: the id that fills the left of shorter prompts; masked, so any id of the vocabulary will do.
            end_ids: every id that ends a reply.
            batch: rows decoded at once.
            prefill_tokens: prompt tokens (padding included) read at once; None: 2048 on a CPU, 32768 elsewhere.
        """
        if batch < 1:
            raise ValueError(f"batch is {batch}; decode at least 1 row at once")
        self.model, self.pad_id, self.end_ids = model, pad_id, tuple(end_ids)
        self.batch = batch
        self.fast_attention = True  # in place of transformers' sdpa
        self.prefill_tokens = prefill_tokens or (2048 if model.device.type == "cpu" else 32768)

    def decode(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, keys: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        """Return ``sampling.n`` completions for each prompt of at least one id, in order; axes ``[prompt][sample]``.

        Args:
            prompts: token ids; equal prompts are prefilled once.
            sampling: how tokens are drawn. At temperature 0 the n completions of a prompt are equal and decoded once.
            keys: what the random numbers of each prompt hang on, in place of its position in the list.
        """
        results: list[list[Completion | None]] = [[None] * sampling.n for _ in prompts]
        unique: dict[tuple[int, ...], int] = {}
        greedy = sampling.temperature == 0
        places: list[list[int]] = []
        for place, prompt in enumerate(prompts):
            index = unique.setdefault(tuple(prompt), len(unique))
            if index == len(places):
                places.append([])
            places[index].append(place)
        found = list(unique)
        order = sorted(range(len(found)), key=lambda index: len(found[index]))
        ids, places = [found[index] for index in order], [places[index] for index in order]
        columns = [
            (index, place, sample)
            for index in range(len(ids))
            for place in (places[index][:1] if greedy else places[index])
            for sample in range(1 if greedy else sampling.n)
        ]
        with decoding_mode(self.model, self.fast_attention):
            for start in range(0, len(columns), self.batch):
                rows = _Rows(*np.array(columns[start : start + self.batch], dtype=np.int64).T)
                number = np.asarray(rows.place if keys is None else np.asarray(keys, dtype=np.int64)[rows.place])
                completions = self._decode_rows(ids, rows, sampling, None if greedy else number.astype(np.uint64))
                for index, place, sample, completion in zip(
                    rows.prompt, rows.place, rows.sample, completions, strict=True
                ):
                    if greedy:
                        for twin in places[index]:
                            results[twin] = [completion] * sampling.n
                    else:
                        results[place][sample] = completion
        return [[completion for completion in row if completion is not None] for row in results]

    def _decode_rows(
        self, ids: list[tuple[int, ...]], rows: _Rows, sampling: Sampling, number: NDArray[np.uint64] | None
    ) -> list[Completion]:
        """Decode one batch of rows to their end; ``number`` keys the random numbers (None: greedy)."""
        device, steps = self.model.device, sampling.max_tokens
        used, row_prompt = np.unique(rows.prompt, return_inverse=True)
        used_ids = [ids[index] for index in used]
        select = torch.as_tensor(row_prompt, device=device)
        logits, cache, mask = self._prefill(used_ids, keep_cache=steps > 1)
        state = _Batch(self.model, cache, mask, select, steps)
        logits = logits[select]
        random = None
        if number is not None:
            table = uniforms(sampling.seed, number, (rows.sample + sampling.first).astype(np.uint64), steps)
            random = torch.from_numpy(table).to(device)
        out = torch.full((len(rows.prompt), steps), -1, dtype=torch.long, device=device)
        ends = torch.zeros(logits.shape[-1], dtype=torch.bool, device=device)
        ends[[end for end in self.end_ids if end < logits.shape[-1]]] = True
        alive = torch.arange(len(rows.prompt), device=device)  # rows of `out` that the batch still holds
        running = torch.ones_like(alive, dtype=torch.bool)
        for step in range(steps):
            token = choose(logits, sampling, None if random is None else random[alive, step])
            out[alive[running], step] = token[running]
            running = running & ~ends[token]
            left = int(running.sum())
            if left == 0 or step + 1 == steps:
                break
            if left < _COMPACT_BELOW * len(alive):
                kept = running.nonzero().squeeze(1)
                alive, token, running = alive[kept], token[kept], running[kept]
                state.keep(kept)
            logits = state.step(token)
        table_ids = out.cpu().numpy()
        lengths = (table_ids >= 0).sum(1)
        end_set = set(self.end_ids)
        texts = [tuple(row[:length].tolist()) for row, length in zip(table_ids, lengths, strict=True)]
        return [Completion(text, text[-1] in end_set) for text in texts]

    def _prefill(self, prompts: list[tuple[int, ...]], keep_cache: bool) -> tuple[Tensor, DynamicCache | None, Tensor]:
        """Return the last position's logits (U, V), the cache (None if not wanted) and the mask (U, L) of the prompts.

        ``prompts`` come sorted by length. They are read in parts small enough for the processor's cache, each padded
        to its own longest prompt; `_join` pads the parts' caches to one width.
        """
        width = len(prompts[-1])
        simple = only_full_attention(self.model.config.get_text_config())
        parts = list(self._parts(prompts)) if simple or not keep_cache else [prompts]
        logits, caches, masks = [], [], []
        for part in parts:
            tokens, attended = self._padded(part)
            cache = None
            if keep_cache:
                cache = _roomy_cache(self.model.config) if simple else DynamicCache(config=self.model.config)
            padded = len(part[0]) < len(part[-1])
            output = self.model(
                input_ids=tokens,
                attention_mask=attended if padded or not simple else None,
                position_ids=(attended.cumsum(-1) - 1).clamp_min(0),
                past_key_values=cache,
                use_cache=keep_cache,
                logits_to_keep=1,
            )
            logits.append(output.logits[:, -1])
            caches.append(cache)
            masks.append(torch.nn.functional.pad(attended, (width - tokens.shape[1], 0)))
        return torch.cat(logits), _join(caches, width), torch.cat(masks)

    def _parts(self, prompts: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        """Yield runs of consecutive prompts whose padded size is at most ``prefill_tokens`` (or one prompt)."""
        start = 0
        for end in range(1, len(prompts) + 1):
            full = end == len(prompts) or (end + 1 - start) * len(prompts[end]) > self.prefill_tokens
            if full:
                yield prompts[start:end]
                start = end

    def _padded(self, prompts: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        """Return ids and mask of prompts sorted by length, left-padded to the longest, each of shape (U, L)."""
        width = len(prompts[-1])
        table = np.full((len(prompts), width), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(prompts), width), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            table[row, width - len(prompt) :] = prompt
            mask[row, width - len(prompt) :] = 1
        return torch.from_numpy(table).to(self.model.device), torch.from_numpy(mask).to(self.model.device)


def _roomy_cache(config: Any) -> DynamicCache:
    cache = DynamicCache()
    cache.layers = [RoomyLayer() for _ in range(config.get_text_config().num_hidden_layers)]
    return cache


def _join(caches: list[DynamicCache | None], width: int) -> DynamicCache | None:
    """Return one cache of all prompts from caches of consecutive prompts, left-padded to ``width`` positions."""
    first = caches[0]
    if first is None or len(caches) == 1:
        return first
    for index, layer in enumerate(first.layers):
        assert isinstance(layer, RoomyLayer)
        others = [cache.layers[index] for cache in caches if cache is not None]
        for name in ("keys", "values"):
            tensors = [getattr(other, name) for other in others]
            wide = [torch.nn.functional.pad(tensor, (0, 0, width - tensor.shape[-2], 0)) for tensor in tensors]
            setattr(layer, name, torch.cat(wide))
        layer.length = width
    return first


class _Batch:
    """The cache, positions and mask of the rows being decoded."""

    def __init__(self, model: Any, cache: DynamicCache | None, mask: Tensor, select: Tensor, steps: int) -> None:
        """Spread the prompts' cache over the rows; ``select`` (R,) names each row's prompt."""
        self.model, self.cache = model, cache
        self.next = mask.shape[1]  # cache length, padding included
        self.position = mask.sum(1)[select]  # position of the next token, shape (R,)
        if cache is None:
            return
        self._take(select, min(steps - 1, _ROOM))
        attended = torch.nn.functional.pad(mask[select], (0, steps - 1), value=1)
        kind = ready_mask(model.config.get_text_config())
        if kind is None:
            self.mask = attended
        elif kind is torch.bool:  # made once, sliced at every step
            self.mask = attended.bool()[:, None, None, :]
        else:
            empty = torch.zeros(attended.shape, dtype=model.dtype, device=mask.device)
            self.mask = empty.masked_fill(attended == 0, torch.finfo(model.dtype).min)[:, None, None, :]

    def _take(self, rows: Tensor, room: int) -> None:
        assert self.cache is not None
        for layer in self.cache.layers:
            if isinstance(layer, RoomyLayer):
                layer.spread(rows, room)
            elif isinstance(layer, DynamicLayer):
                layer.batch_select_indices(rows)
            else:
                raise ValueError(
                    f"the model keeps a {type(layer).__name__}, whose rows cannot be selected; use a model "
                    "whose layers all keep keys and values"
                )

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but the given ones."""
        self._take(rows, _ROOM)
        self.mask, self.position = self.mask[rows], self.position[rows]

    def step(self, token: Tensor) -> Tensor:
        """Append one token a row, shape (R,), and return the logits after it, shape (R, V)."""
        self.next += 1
        output = self.model(
            input_ids=token[:, None],
            attention_mask=self.mask[..., : self.next],
            position_ids=self.position[:, None],
            past_key_values=self.cache,
            use_cache=True,
        )
        self.position = self.position + 1
        logits: Tensor = output.logits[:, -1]
        return logits
