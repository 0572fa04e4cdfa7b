"""Units of measure and money: what a unit's name stands for, and how units of one kind convert.

A unit is ``(dimension, factor)``: the factor turns a number of that unit into a number of the dimension's base unit.
A name that is not in the table is a unit of its own (``"apples"``).
"""

from __future__ import annotations

import re
from fractions import Fraction

Unit = tuple[str, Fraction]

_LENGTH = {"mm": "1/1000", "millimeter": "1/1000", "millimetre": "1/1000", "cm": "1/100", "centimeter": "1/100",
           "centimetre": "1/100", "dm": "1/10", "m": "1", "meter": "1", "metre": "1", "km": "1000", "kilometer": "1000",
           "kilometre": "1000", "in": "254/10000", "inch": "254/10000", "ft": "3048/10000", "foot": "3048/10000",
           "feet": "3048/10000", "yd": "9144/10000", "yard": "9144/10000", "mi": "1609344/1000",
           "mile": "1609344/1000"}  # fmt: skip
_TIME = {"s": "1", "sec": "1", "second": "1", "ms": "1/1000", "millisecond": "1/1000", "min": "60", "minute": "60",
         "h": "3600", "hr": "3600", "hour": "3600", "day": "86400", "week": "604800"}  # fmt: skip
_MASS = {"mg": "1/1000000", "milligram": "1/1000000", "g": "1/1000", "gram": "1/1000", "kg": "1", "kilogram": "1",
         "tonne": "1000", "lb": "45359237/100000000", "pound": "45359237/100000000", "oz": "45359237/1600000000",
         "ounce": "45359237/1600000000"}  # fmt: skip
_VOLUME = {"ml": "1/1000000", "milliliter": "1/1000000", "millilitre": "1/1000000", "l": "1/1000", "L": "1/1000",
           "liter": "1/1000", "litre": "1/1000"}  # fmt: skip
_MONEY = {"usd": "1", "dollar": "1", "cent": "1/100", "penny": "1/100", "pennies": "1/100"}
_CALENDAR = {"month": "1", "year": "12", "yr": "12"}
_ANGLE = {"radian": "1", "rad": "1"}

_TABLE: dict[str, Unit] = {}
for _dimension, _names in (
    ("length", _LENGTH), ("time", _TIME), ("mass", _MASS), ("length^3", _VOLUME), ("usd", _MONEY),
    ("calendar", _CALENDAR), ("angle", _ANGLE),
):  # fmt: skip
    for _name, _factor in _names.items():
        _TABLE[_name] = (_dimension, Fraction(_factor))
for _alias, _dimension in {
    "eur": "eur", "euro": "eur", "gbp": "gbp", "yen": "yen", "inr": "inr", "rupee": "inr", "yuan": "yuan",
    "N": "newton", "newton": "newton", "J": "joule", "joule": "joule", "W": "watt", "watt": "watt", "V": "volt",
    "volt": "volt", "A": "ampere", "ampere": "ampere", "K": "kelvin", "kelvin": "kelvin", "Hz": "hertz",
    "hertz": "hertz", "mol": "mole", "mole": "mole", "Pa": "pascal", "pascal": "pascal",
    "eV": "eV", "kWh": "kWh", "acre": "acre", "gallon": "gallon",
}.items():  # fmt: skip
    _TABLE[_alias] = (_dimension, Fraction(1))

_TABLE["mph"] = ("length/time", Fraction(1609344, 3600000))

# Words that count without measuring: "5 units" is 5.
_NEUTRAL = {"", "unit", "square unit", "cubic unit", "unit^2", "unit^3", "squared unit", "sq unit", "u", "in total"}
_POWER_WORDS = (("square ", "^2"), ("sq ", "^2"), ("sq. ", "^2"), ("cubic ", "^3"))
_SIMPLE = re.compile(r"([A-Za-z]+)(?:\^(-?\d))?")
SINGLE_LETTERS = frozenset("msghLNJWVAK")  # unit signs that could also be a variable


def _singular(word: str) -> str:
    lower = word if word in _TABLE else word.lower()
    if lower in _TABLE:
        return lower
    for ending, new in (("ies", "y"), ("es", ""), ("s", "")):
        stem = lower[: -len(ending)] + new
        if lower.endswith(ending) and (stem in _TABLE or (ending == "s" and len(stem) > 2)):
            return stem
    return lower


def is_known(word: str) -> bool:
    """Return True for a word that the table names as a unit, in singular or plural."""
    return _singular(word) in _TABLE


def read_unit(text: str) -> Unit | None:
    """Return the unit that ``text`` names, or None when it names no unit that measures.

    ``text`` may hold powers and quotients: ``"cm^2"``, ``"square meters"``, ``"miles per hour"``, ``"m/s"``.
    """
    plain = re.sub(r"\s+", " ", re.sub(r"[{}()\\.]", "", text)).strip()
    plain = re.sub(r"\s*\^\s*", "^", plain)
    plain = re.sub(r"(?i)^degrees? (?=[A-Z])", "", plain)  # degrees Celsius
    power = ""
    for word, mark in _POWER_WORDS:
        if plain.lower().startswith(word):
            plain, power = plain[len(word) :], mark
            break
    if plain.lower() in _NEUTRAL or _singular(plain) in _NEUTRAL:
        return None
    dimension, factor = "", Fraction(1)
    for index, part in enumerate(re.split(r"\s*/\s*|\s+per\s+", plain)):
        found = _read_product(part + (power if index == 0 else ""))
        dimension += ("/" if index else "") + found[0]
        factor = factor / found[1] if index else factor * found[1]
    return dimension, factor


def _read_product(part: str) -> Unit:
    simple = _SIMPLE.fullmatch(part)
    if simple and _singular(simple.group(1)) in _TABLE:
        name, factor = _TABLE[_singular(simple.group(1))]
        power = int(simple.group(2) or 1)
        if power != 1:
            name = f"{name}^{power}"
        return name, factor**power
    words = part.split(" ")
    return " ".join(_singular(w) for w in words), Fraction(1)
