"""Make the testbed's initialisation set out of an R-Zero run, labelled by the oracle (R-Quest, appendix A.1).

Run ``python -m selfevolve.testbed.build_initialisation RUN``. The questions are those that R-Zero kept for its solver
in rounds 1 to 5, so the set shows the solver what the collapse brings.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from selfevolve.records import Decision
from selfevolve.rundir import RunDir
from selfevolve.stages.initialisation import TESTBED_DATA
from selfevolve.testbed.oracle import oracle
from validity import INVALID, Label, build_initialisation_set, write_examples

ROUNDS = 5


def label(question: str) -> Label:
    """Return the oracle's label."""
    truth = oracle(question)
    return Label(truth.answer or INVALID, truth.error_type.value if truth.error_type else None)


def main() -> None:
    """Build the set from the run named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder of an R-Zero recipe with at least five rounds done")
    parser.add_argument("--train", type=int, default=400, help="training questions a round")
    parser.add_argument("--held-out", type=int, default=60, help="held-out questions a round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=TESTBED_DATA)
    args = parser.parse_args()
    run = RunDir.open(args.run)
    if run.rounds_done() < ROUNDS:
        parser.error(f"{args.run} has {run.rounds_done()} rounds done; {ROUNDS} are needed")
    rounds = {
        number: [
            row["question"]
            for row in run.read(number, "assessment", "assessed.jsonl")
            if row["decision"] == Decision.KEPT
        ]
        for number in range(1, ROUNDS + 1)
    }
    found = build_initialisation_set(rounds, label, train=args.train, held_out=args.held_out, seed=args.seed)
    write_examples(args.out, found.examples)
    for split in sorted({e.split for e in found.examples}):
        part = found.split(split)
        errors = Counter(e.error_type or "valid" for e in part)
        print(f"{split}: {len(part)} questions; " + ", ".join(f"{k} {v}" for k, v in errors.most_common()))
    print(f"{found.duplicates} duplicates left out; written to {args.out}")


if __name__ == "__main__":
    main()
