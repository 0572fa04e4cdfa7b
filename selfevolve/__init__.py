"""selfevolve: self-evolution of a questioner and a solver grown from one language model."""

__version__ = "0.1.0"
