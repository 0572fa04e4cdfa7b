# ruff: noqa: E501 - a meaning stands on one line
"""What each number of the page means, in a line; the same words stand in tooltips and in the glossary."""

from __future__ import annotations

MEANINGS = {
    "Calibrated": "Sessions in which exactly one of the two boundary solvers agrees with the cross-check, of the sessions that count. No question and bad cross-check count as not calibrated.",
    "Ungradable": "Something outside the game failed (a call, a deadline, a cut-off reply, no room). Out of the rate and its denominator, never counted as wrong.",
    "Interval": "95%. Beside a rate: bootstrap that redraws whole pairs and whole slots, since sessions of a pair are alike. In single cells, and where no bootstrap is possible: Wilson's.",
    "Chance line": "What two copies of one solver would earn on the same questions: 2p(1 \u2212 p) averaged over both solvers, estimated without bias from fresh solutions. At p = 0.5 it is 50%, without any gap between the solvers.",
    "Above chance": "Calibrated rate less the chance line, on the same sessions. Its expectation is the mean squared gap (p_a \u2212 p_b)\u00b2: 0 where both solvers are equally able on every question.",
    "Expected rate": "P(exactly one right) of the pair from fresh solutions: the calibrated rate with the luck of the single draw averaged out.",
    "Same model twice": "The game played with one solver in both seats: the chance line played instead of computed, on questions asked for that pair.",
    "Shuffled pairs": "The questions, solved by the solvers of another pair. The own pair less this is what aiming at the pair earns.",
    "No probing": "Questions that the asker wrote without a probe, solved by the whole pool: the share of question x pair with exactly one right.",
    "Label flips": "How often a label would be another one if both solvers answered once more.",
    "Redraws differ": "How often two redrawn labels differ. It has the same expectation as label flips; a clear difference says that the fresh solutions were drawn otherwise.",
    "Stably calibrated": "One solver is right in at least 80% of its fresh solutions and the other in at most 20%.",
    "Gap": "Share right of the stronger solver less that of the weaker one, averaged over the final questions.",
    "Direction": "Among calibrated sessions, whether the stronger or the weaker solver was the one that was right. McNemar's exact test asks whether both are equally likely.",
    "Cross-check true": "Share of cross-check answers that the oracle gives too. Where it is low, \u201ccalibrated\u201d says who agrees with the cross-check, not who is right.",
    "Regrade": "The same replies graded by another cross-check: share of sessions with the same label, and how far the rate moves.",
    "Difficulty": "Mean share of right solutions of a final question over all solvers of the pool, by the session's label.",
    "Paired permutation": "Two askers on the same pairs and slots: how often a random exchange of the two gives a difference as large. Holm: adjusted for all comparisons of the table.",
    "Sessions needed": "Sessions an asker that show the observed difference with 80% power at 5%, cells taken as independent; the second number adds the share that drops out.",
}  # fmt: skip
"""By name: the meaning."""
