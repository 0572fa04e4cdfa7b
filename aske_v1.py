"""Ask-E under the name by which verifiers finds it: ``vf-eval aske-v1``."""

from aske.adapters.verifiers_env import AskeEnv, AskeHarness, AskeTaskset

__all__ = ["AskeEnv", "AskeHarness", "AskeTaskset"]
