"""Ask-E: a game in which an asker writes a question that exactly one of two boundary solvers answers.

Useful alone: the game is a pure state machine (`Session`), `play` drives many with samplers, the command ``aske`` runs
the benchmark. Imports the ground floor of `selfevolve` and nothing else of it.
"""

from aske.errors import AskeError
from aske.game import Rules, Seat, Session, State
from aske.labels import Grade, Label, Mark, Reason, grade
from aske.parsing import Malformed, Turn, parse_turn
from aske.play import Samplings, Seats, Slot, play
from aske.prompts import AskePack, load_pack
from aske.records import Call, SessionRecord, record, replay

__all__ = [
    "AskeError",
    "AskePack",
    "Call",
    "Grade",
    "Label",
    "Malformed",
    "Mark",
    "Reason",
    "Rules",
    "Samplings",
    "Seat",
    "Seats",
    "Session",
    "SessionRecord",
    "Slot",
    "State",
    "Turn",
    "grade",
    "load_pack",
    "parse_turn",
    "play",
    "record",
    "replay",
]
