"""The sampler protocol, its records, and the scripted sampler (ground floor: imports nothing of ours)."""

from selfevolve.sampling.protocol import (
    FinishReason,
    KeyedSampler,
    Message,
    Prompt,
    Reply,
    Sampler,
    Sampling,
    are_copies,
    sample_more,
    user,
)
from selfevolve.sampling.scripted import ScriptedSampler

__all__ = [
    "FinishReason",
    "KeyedSampler",
    "Message",
    "Prompt",
    "Reply",
    "Sampler",
    "Sampling",
    "ScriptedSampler",
    "are_copies",
    "sample_more",
    "user",
]
