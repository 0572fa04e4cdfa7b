"""What surrounds the trainer's loss: tokens without gradient stay out of it whole, and padding is not computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from selfevolve.train.rollouts import Clock


class MaskedLoss:
    """Stands before TRL's trainer among the bases of ours."""

    clock: Clock
    outside: Tensor | None = None  # during a loss: tokens without gradient, shape of completion_ids

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        """As TRL's, with the log-probabilities of masked tokens held at a constant.

        TRL multiplies the loss of a token by its mask, which is not enough: a ratio or KL estimate that overflows at a
        token of the world would make the whole loss infinity times 0.
        """
        self.outside = inputs["completion_mask"] * inputs["tool_mask"] == 0
        others = [name for name in ("old_per_token_logps", "ref_per_token_logps") if name in inputs]
        filled = {name: inputs[name].masked_fill(self.outside, 0.0) for name in others}
        try:
            return super()._compute_loss(model, {**inputs, **filled})  # type: ignore[misc]
        finally:
            self.outside = None

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """As TRL's, in batches of rows of like length and without the columns that are padding in all of them."""
        with self.clock.part("forward"):
            size = batch_size or len(input_ids)
            order = attention_mask.sum(1).argsort(stable=True) if size < len(input_ids) else None
            parts = [
                self._trimmed(model, input_ids[rows], attention_mask[rows], logits_to_keep, **options)
                for rows in (torch.arange(len(input_ids)) if order is None else order).split(size)
            ]
            joined = [
                None if parts[0][i] is None else torch.cat([part[i] for part in parts if part[i] is not None])
                for i in range(2)
            ]
            if order is not None:
                back = order.argsort()
                joined = [None if tensor is None else tensor[back] for tensor in joined]
            assert joined[0] is not None
            if self.outside is not None:
                joined[0] = joined[0].masked_fill(self.outside, 0.0)
            losses = [part[2] for part in parts if part[2] is not None]
            return joined[0], joined[1], torch.stack(losses).mean() if losses else None

    def _trimmed(
        self, model: Any, ids: Tensor, mask: Tensor, keep: int, **options: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        used = mask.any(0)
        prompt = ids.shape[1] - keep
        left = int(used[:prompt].long().argmax())
        right = int(used[prompt:].sum())
        logps, entropies, loss = super()._get_per_token_logps_and_entropies(  # type: ignore[misc]
            model, ids[:, left : prompt + right], mask[:, left : prompt + right], right, **options
        )
        padded = [None if x is None else torch.nn.functional.pad(x, (0, keep - right)) for x in (logps, entropies)]
        assert padded[0] is not None
        return padded[0], padded[1], loss
