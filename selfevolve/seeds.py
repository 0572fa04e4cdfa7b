"""Seeds: everything drawn in a run derives from (run seed, round, stage, step).

The rule itself stands on the ground floor, since samplers derive the seeds of single calls by it too.
"""

from __future__ import annotations

from selfevolve.sampling._derive import derive

__all__ = ["derive"]
