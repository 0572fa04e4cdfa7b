"""Frozen models where the recipe wants them: in process, on servers that the run starts, or at endpoints."""

from selfevolve.serving.make import close, make_sampler
from selfevolve.serving.process import ServerError

__all__ = ["ServerError", "close", "make_sampler"]
