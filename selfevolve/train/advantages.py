"""Group-normalised advantages (GRPO), with masked completions and groups without a spread."""

from __future__ import annotations

from collections.abc import Sequence

from selfevolve.train.spec import TrainingError

_NO_SPREAD = 1e-6  # a smaller standard deviation is float noise, never a preference


def spread(rewards: Sequence[float | None]) -> tuple[float, float] | None:
    """Return mean and sample standard deviation of the scored rewards, or None where they have no spread."""
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return None
    mean = sum(scored) / len(scored)
    deviation = (sum((reward - mean) ** 2 for reward in scored) / (len(scored) - 1)) ** 0.5
    return None if deviation <= _NO_SPREAD else (mean, deviation)


def group_advantages(rewards: Sequence[float | None], group: int) -> list[float]:
    """Return the advantage of each completion: (reward - mean) / standard deviation of its group.

    Mean and sample deviation are taken over the group's scored entries. A masked entry (None), the only scored entry of
    a group, and every entry of a group without a spread have advantage 0.

    Args:
        rewards: groups of ``group`` lie together.
        group: completions an input.
    """
    advantages: list[float] = []
    for start in range(0, len(rewards), group):
        part = rewards[start : start + group]
        found = spread(part)
        if found is None:
            advantages += [0.0] * len(part)
        else:
            mean, deviation = found
            advantages += [0.0 if reward is None else (reward - mean) / deviation for reward in part]
    return advantages


def checked_rewards(rewards: Sequence[float | None], expected: int) -> list[float | None]:
    """Return the rewards as plain floats or None.

    Raises:
        TrainingError: another number of rewards than ``expected``, or one that is not finite.
    """
    if len(rewards) != expected:
        raise TrainingError(f"the reward returned {len(rewards)} values for {expected} completions", "Return one each.")
    plain = [None if reward is None else float(reward) for reward in rewards]
    for index, reward in enumerate(plain):
        if reward is not None and not abs(reward) < float("inf"):
            raise TrainingError(
                f"the reward of completion {index} is {reward}", "Return a finite number, or None to mask it."
            )
    return plain
