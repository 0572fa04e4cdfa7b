"""Embedders of questions, for the diversity term: a small deterministic one, or a model of sentence-transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfevolve.errors import UserError
from selfevolve.sampling.weights import refuse_pickled

if TYPE_CHECKING:
    from aske.reward import Embed, Vectors

NGRAMS = "ngrams"  # the name of `HashedNgrams` in recipes
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


class HashedNgrams:
    """Signed hashing of word n-grams (Weinberger et al. 2009): the same text gives the same vector on any machine.

    Numbers are one word, so that an exercise with other numbers is not new. The sign of each n-gram comes from its hash
    too, so that collisions do not raise similarity on average.
    """

    def __init__(self, dimension: int = 512, longest: int = 3) -> None:
        """Keep the length of vectors and the longest n-gram, in words."""
        self.dimension, self.longest = dimension, longest

    def __call__(self, questions: Sequence[str]) -> Vectors:
        """Return one row of n-gram counts a question, not scaled; shape [question, dimension]."""
        import numpy as np

        vectors = np.zeros((len(questions), self.dimension), dtype=np.float64)
        for row, question in enumerate(questions):
            for gram in self.grams(question):
                digest = int.from_bytes(blake2b(gram.encode(), digest_size=8).digest(), "big")
                vectors[row, (digest >> 1) % self.dimension] += 1.0 if digest & 1 else -1.0
        return vectors

    def grams(self, question: str) -> list[str]:
        """Return all n-grams of 1 to `longest` words."""
        words = ["#" if w.isdecimal() else w for w in _WORD.findall(question.lower())]
        lengths = range(1, self.longest + 1)
        return [" ".join(words[i : i + n]) for n in lengths for i in range(len(words) - n + 1)]


def load_embedder(name: str) -> Embed:
    """Return the embedder of a recipe: ``ngrams``, or a sentence-transformers model by folder or hub id.

    Raises:
        UserError: the library is not installed, or the folder's weights are pickled.
    """
    if name == NGRAMS:
        return HashedNgrams()
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise UserError(
            f"the embedder is {name!r}, but sentence-transformers is not installed",
            f"install it (pip install sentence-transformers), or set the embedder to {NGRAMS}",
        ) from None
    _refuse_pickled(Path(name))
    model: Any = SentenceTransformer(name, model_kwargs={"use_safetensors": True})

    def embed(questions: Sequence[str]) -> Vectors:
        import numpy as np

        return np.asarray(model.encode(list(questions), show_progress_bar=False), dtype=np.float64)

    return embed


def _refuse_pickled(folder: Path) -> None:
    """Refuse a local folder with pickled weights, in itself or in one of its modules."""
    listed = folder / "modules.json"
    modules = json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else []
    try:
        for part in ("", *(module["path"] for module in modules)):
            refuse_pickled(folder / part)
    except ValueError as error:
        raise UserError(str(error)) from None
