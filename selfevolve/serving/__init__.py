"""Frozen models where the recipe wants them: in process, on servers that the run starts, or at endpoints."""

from selfevolve.serving.make import Elsewhere, Way, check, close, make_sampler, start
from selfevolve.serving.process import ServerError

__all__ = ["Elsewhere", "ServerError", "Way", "check", "close", "make_sampler", "start"]
