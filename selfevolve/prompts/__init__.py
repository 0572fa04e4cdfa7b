"""Prompt packs: ``testbed`` (control tokens), ``standard`` (real models), or texts from a YAML file."""

from selfevolve.prompts.pack import STANDARD, TESTBED, PromptPack, load_pack

__all__ = ["STANDARD", "TESTBED", "PromptPack", "load_pack"]
