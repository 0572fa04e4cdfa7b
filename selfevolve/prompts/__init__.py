"""Prompt packs: ``testbed`` (control tokens), ``standard`` and ``plain`` (real models), or texts from a YAML file."""

from selfevolve.prompts.pack import PLAIN, STANDARD, TESTBED, PromptPack, load_pack

__all__ = ["PLAIN", "STANDARD", "TESTBED", "PromptPack", "load_pack"]
