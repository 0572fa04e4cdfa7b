"""Out of memory, in words that say which settings to change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from selfevolve.config import Recipe
from selfevolve.errors import UserError

SAYINGS = ("CUDA out of memory", "HIP out of memory", "can't allocate memory", "not enough memory")  # torch's words
NAME = "OutOfMemoryError"  # torch's class, by name: an engine without torch needs no import of it


class MemoryFullError(UserError):
    """A GPU's memory, or the machine's, does not hold what a stage needs."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True when ``error`` says that memory is full, on a GPU or in the machine."""
    if isinstance(error, MemoryError) or type(error).__name__ == NAME:
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAYINGS)


@contextmanager
def out_of_memory_is_clear(stage: str, recipe: Recipe, *, training: bool = False) -> Iterator[None]:
    """Turn "out of memory" within the block into a `MemoryFullError` that names the settings to change."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not is_out_of_memory(error):
            raise
        said = " ".join(str(error).split())[:400] or type(error).__name__
        raise MemoryFullError(f"stage {stage} ran out of memory: {said}", remedy(recipe, training)) from error


def remedy(recipe: Recipe, training: bool) -> str:
    """Return what to change, the cheapest first; only what is not in use yet."""
    words = [f"lower generation.batch (now {recipe.generation.batch}), the sequences decoded together"]
    if training:
        words.append(f"lower micro_batch (now {recipe.micro_batch}), the sequences of one forward-backward pass")
        if not recipe.gradient_checkpointing:
            words.append("set gradient_checkpointing=true")
        if recipe.lora is None:
            words.append("train adapters with lora.rank=16")
            words.append("or shard the weights over more GPUs (accelerate_config)")
    first = "selfevolve resume RUN micro_batch=N" if training else "selfevolve resume RUN generation.batch=N"
    return "; ".join(words) + f"; all but lora may change as the run goes on: {first}, see docs/failures.md"
