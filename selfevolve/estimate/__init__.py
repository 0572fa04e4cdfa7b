"""What a run will cost: replies, tokens, GPU hours, memory and disk, from a recipe; nothing is loaded or started."""

from selfevolve.estimate.asker import asker_estimate
from selfevolve.estimate.cost import FILL, LEARN_COST, PROMPT, Asked, Estimate, Learned, StageCost, estimate
from selfevolve.estimate.devices import DEVICES, Device, find_device
from selfevolve.estimate.shapes import KNOWN, Shape, UnknownShape, shape_of
from selfevolve.estimate.table import duration, gpu_table, table

__all__ = [
    "DEVICES",
    "FILL",
    "KNOWN",
    "LEARN_COST",
    "PROMPT",
    "Asked",
    "Device",
    "Estimate",
    "Learned",
    "Shape",
    "StageCost",
    "UnknownShape",
    "asker_estimate",
    "duration",
    "estimate",
    "find_device",
    "gpu_table",
    "shape_of",
    "table",
]
