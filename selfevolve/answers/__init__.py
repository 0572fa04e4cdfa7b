"""How a reply's final answer is read, compared and voted on. Ground floor: imports nothing of ours."""

from selfevolve.answers.equivalence import Comparison, Equivalence, Route, compare, explain
from selfevolve.answers.extract import extract, extract_choice, extract_final_number, read_label
from selfevolve.answers.readers import read_json
from selfevolve.answers.vote import Vote, vote, vote_many

__all__ = [
    "Comparison",
    "Equivalence",
    "Route",
    "Vote",
    "compare",
    "explain",
    "extract",
    "extract_choice",
    "extract_final_number",
    "read_json",
    "read_label",
    "vote",
    "vote_many",
]
