"""The sampler protocol, its records, and the scripted sampler (ground floor: imports nothing of ours)."""

from selfevolve.sampling.protocol import FinishReason, Message, Prompt, Reply, Sampler, Sampling, user
from selfevolve.sampling.scripted import ScriptedSampler

__all__ = ["FinishReason", "Message", "Prompt", "Reply", "Sampler", "Sampling", "ScriptedSampler", "user"]
