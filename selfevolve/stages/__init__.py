"""The stages of a round; each is a function from what the run folder holds to new files in a folder of its own."""

from selfevolve.stages.candidates import assessment, candidates
from selfevolve.stages.context import Context
from selfevolve.stages.data import data
from selfevolve.stages.diagnostics import diagnostics, start_metrics
from selfevolve.stages.initialisation import initialisation
from selfevolve.stages.questioner import questioner
from selfevolve.stages.solver import solver

__all__ = [
    "Context",
    "assessment",
    "candidates",
    "data",
    "diagnostics",
    "initialisation",
    "questioner",
    "solver",
    "start_metrics",
]
