"""How likely the K-sampled gate is to let a question pass, exactly and in the approximation (R-Quest, appendix B.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path


def pass_probability(batch: int, same: int, k: int) -> float:
    """Return the probability that none of K references is of the candidate's type (R-Quest, equation 2), exactly.

    C(batch - 1 - same, K) / C(batch - 1, K), where K is at most batch - 1: with fewer others, all are references.

    Args:
        batch: Questions in the batch, the candidate included.
        same: Others that the judge holds to be of the candidate's type.
        k: References drawn, uniformly and without replacement; 0 lets everything pass.

    Raises:
        ValueError: A number is negative, the batch is empty, or `same` exceeds the others of the batch.
    """
    if batch < 1:
        raise ValueError(f"batch is {batch}; it holds at least the candidate, so 1 or more")
    others = batch - 1
    if not 0 <= same <= others:
        raise ValueError(f"same is {same}; of a batch of {batch} it must be in 0..{others}")
    if k < 0:
        raise ValueError(f"k is {k}; it must be 0 or above")
    drawn = min(k, others)
    return math.comb(others - same, drawn) / math.comb(others, drawn)


def approximate_pass_probability(share: float, k: int) -> float:
    """Return ``(1 - share) ** K`` (R-Quest, equation 3): close where K is small beside the batch.

    Args:
        share: Fraction of the other questions that are of the candidate's type, 0 to 1.
        k: References drawn.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is {share}; it must be in 0..1")
    if k < 0:
        raise ValueError(f"k is {k}; it must be 0 or above")
    return float((1 - share) ** k)


def plot_pass_probability(path: str | Path, batch: int = 2048, budgets: Sequence[int] = (8, 16)) -> Path:
    """Draw the pass probability against the same-type share and write it to `path`; return the path.

    Lines are exact for a batch of `batch` questions, dots are the approximation; one colour a budget K. The suffix of
    the path decides the format (.png, .svg, .pdf).
    """
    from matplotlib.figure import Figure  # here, so that importing the package stays light

    if batch < 2:
        raise ValueError(f"batch is {batch}; a picture needs at least one other question, so 2 or more")
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    others = batch - 1
    counts = sorted({round(others * step / 200) for step in range(201)})
    for number, k in enumerate(budgets):
        colour = f"C{number}"
        exact = [100 * pass_probability(batch, same, k) for same in counts]
        axes.plot([100 * same / others for same in counts], exact, color=colour, label=f"K = {k}, exact, B = {batch:,}")
        shares = [step / 20 for step in range(21)]
        rough = [100 * approximate_pass_probability(share, k) for share in shares]
        label = f"K = {k}, (1 - p)$^{{{k}}}$"
        axes.plot([100 * s for s in shares], rough, "o", color=colour, markersize=4, fillstyle="none", label=label)
    axes.set_xlabel("Other questions of the same type, p (%)")
    axes.set_ylabel("Probability of passing the gate (%)")
    axes.set_xlim(-1, 101)
    axes.set_ylim(-2, 102)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    return Path(path)
