"""Units of measure and money: what a unit's name stands for, and how units of one kind convert.

A unit is ``(dimension, factor)``: the factor turns a number of that unit into a number of the dimension's base unit.
A name that is not in the table is a unit of its own (``"apples"``).
"""

from __future__ import annotations

import re
from fractions import Fraction

from selfevolve.answers._words import words

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
    "eV": "eV", "acre": "acre", "gallon": "gallon",
}.items():  # fmt: skip
    _TABLE[_alias] = (_dimension, Fraction(1))

_PREFIXES = {"k": "1000", "M": "1000000", "G": "1000000000", "m": "1/1000", "\u00b5": "1/1000000"}
_LONG_PREFIXES = {"kilo": "1000", "mega": "1000000", "giga": "1000000000", "milli": "1/1000", "micro": "1/1000000",
                  "nano": "1/1000000000", "centi": "1/100"}  # fmt: skip
_SMALL = {"nm": "1/1000000000", "ns": "1/1000000000", "\u00b5m": "1/1000000", "\u00b5s": "1/1000000",
          "\u00b5g": "1/1000000000"}  # fmt: skip
_TABLE |= {"mph": ("length/time", Fraction(1609344, 3600000)), "Wh": ("joule", Fraction(3600))}
_TABLE |= {"cal": ("joule", Fraction(4184, 1000)), "calorie": ("joule", Fraction(4184, 1000))}
for _symbol in ("N", "J", "W", "V", "A", "Hz", "Pa", "eV", "mol", "Wh", "cal"):
    for _prefix, _factor in _PREFIXES.items():
        _TABLE.setdefault(_prefix + _symbol, (_TABLE[_symbol][0], Fraction(_factor) * _TABLE[_symbol][1]))
for _word in words("newton joule watt volt ampere hertz pascal mole meter metre gram second calorie"):
    for _prefix, _factor in _LONG_PREFIXES.items():
        _TABLE.setdefault(_prefix + _word, (_TABLE[_word][0], Fraction(_factor) * _TABLE[_word][1]))
for _symbol, _factor in _SMALL.items():
    _TABLE[_symbol] = ({"m": "length", "s": "time", "g": "mass"}[_symbol[-1]], Fraction(_factor))
# letters that may be a unit or a product of variables
AMBIGUOUS = frozenset(["nm", "ns", "mN", "mV", "mA", "mW", "mJ", "kV", "kN", "kA", "GV", "MN", "MV", "MA"])

# What derived units are made of, in the base units above.
_DERIVED = {
    "newton": {"mass": 1, "length": 1, "time": -2}, "joule": {"mass": 1, "length": 2, "time": -2},
    "watt": {"mass": 1, "length": 2, "time": -3}, "pascal": {"mass": 1, "length": -1, "time": -2},
    "hertz": {"time": -1},
}  # fmt: skip

# Words that count without measuring: "5 units" is 5.
_NEUTRAL = {"", "unit", "square unit", "cubic unit", "unit^2", "unit^3", "squared unit", "sq unit", "u", "in total"}
_POWER_WORDS = (("square ", "^2"), ("sq ", "^2"), ("sq. ", "^2"), ("cubic ", "^3"))
_SIMPLE = re.compile(r"([A-Za-z\u00b5]+)(?:\^(-?\d))?")
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
    return word not in AMBIGUOUS and _singular(word) in _TABLE


def may_be(word: str) -> bool:
    """Return True for a known unit, and for letters that may be one or a product of variables (``nm``)."""
    return _singular(word) in _TABLE


def read_unit(text: str) -> Unit | None:
    """Return the unit that ``text`` names, or None when it names no unit that measures.

    ``text`` may hold powers and quotients: ``"cm^2"``, ``"square meters"``, ``"miles per hour"``, ``"m/s"``.
    """
    text = re.sub(r"\\?mu\s*(?=[msg](?![A-Za-z]))", "\u00b5", text)
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
    powers: dict[str, int] = {}
    factor = Fraction(1)
    for index, part in enumerate(re.split(r"\s*/\s*|\s+per\s+", plain)):
        found = _read_product(part + (power if index == 0 else ""))
        for name, exponent in found[0].items():
            powers[name] = powers.get(name, 0) + (-exponent if index else exponent)
        factor = factor / found[1] if index else factor * found[1]
    return _named(powers), factor


def _named(powers: dict[str, int]) -> str:
    """Return the name of a dimension: its parts in order, as in ``length*time^-2``."""
    kept = sorted((name, power) for name, power in powers.items() if power)
    return "*".join(name if power == 1 else f"{name}^{power}" for name, power in kept)


def _read_product(part: str) -> tuple[dict[str, int], Fraction]:
    """Return the powers of base units, and the factor, of ``kg m^2`` or of one name such as ``cm``."""
    pieces = [p for p in re.split(r"\s*(?:\*|cdot|\s)\s*", part.strip()) if p]
    simple = [_SIMPLE.fullmatch(p) for p in pieces]
    if pieces and _singular(part) not in _TABLE and all(m and _singular(m.group(1)) in _TABLE for m in simple):
        powers: dict[str, int] = {}
        factor = Fraction(1)
        for match in simple:
            assert match is not None
            name, one = _TABLE[_singular(match.group(1))]
            exponent = int(match.group(2) or 1)
            for base, times in _base(name).items():
                powers[base] = powers.get(base, 0) + times * exponent
            factor *= one**exponent
        return powers, factor
    if _singular(part) in _TABLE:
        name, factor = _TABLE[_singular(part)]
        return _base(name), factor
    return {" ".join(_singular(w) for w in part.split(" ")): 1}, Fraction(1)


def _base(name: str) -> dict[str, int]:
    if name == "length^3":
        return {"length": 3}
    return {"length": 1, "time": -1} if name == "length/time" else _DERIVED.get(name, {name: 1})
