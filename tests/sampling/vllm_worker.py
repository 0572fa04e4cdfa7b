"""Run by a python that has vLLM: holds a `VllmSampler` and answers calls that come pickled through stdin.

The first request is (model folder, options of `VllmSampler`), each further one (method, arguments); every answer is the
result or the exception.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any, BinaryIO


def answer(out: BinaryIO, result: Any) -> None:
    pickle.dump(result, out)
    out.flush()


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the engine prints must not stand among the answers
    from selfevolve.sampling.vllm_sampler import VllmSampler

    requests = sys.stdin.buffer
    model, options = pickle.load(requests)
    try:
        sampler = VllmSampler(model, **options)
    except Exception as error:
        answer(out, RuntimeError(f"{type(error).__name__}: {error}"))
        return
    answer(out, {"name": sampler.name, "format": sampler.format.value, "identity": sampler.identity})
    while True:
        try:
            method, arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            answer(out, getattr(sampler, method)(*arguments))
        except Exception as error:
            answer(out, RuntimeError(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":  # the engine's own process imports this file again
    main()
