"""A small world of exercises with an exact oracle, and small language models that live in it."""

from selfevolve.testbed.oracle import Truth, oracle

__all__ = ["Truth", "oracle"]
