"""From the forms of several values in a row to one form: a list, a record of names, a sum of units, a region."""

from __future__ import annotations

from selfevolve.answers import _scalar
from selfevolve.answers._forms import (
    End,
    Form,
    Group,
    Named,
    Record,
    Region,
    Scalar,
    Text,
    intersection,
    interval,
    union,
)
from selfevolve.answers._tokens import Unreadable


def combine(forms: list[Form], joints: set[str]) -> Form:
    """Return the form of several values in a row."""
    flat: list[Form] = []
    for form in forms:  # 1 ± 2 gives two values
        flat.extend(form.items if isinstance(form, Group) and form.kind == "list" else [form])
    if all(isinstance(f, Region) for f in flat) and joints & {"or", "and"}:
        regions = [f for f in flat if isinstance(f, Region)]
        if len({r.variable for r in regions}) == 1:
            return union(regions) if "or" in joints else intersection(regions)
    if "or" in joints and any(isinstance(f, Region) for f in flat) and (mixed := _points_and_regions(flat)):
        return union(mixed)
    regions = [f for f in flat if isinstance(f, Region)]
    if len(regions) == len(flat) and regions[0].variable and len({r.variable for r in regions}) == 1:
        return apart(regions) or intersection(regions)  # "x < 1, x > 3" and "x > 1, x < 3"
    if joints == {"and"} and any(isinstance(f, Scalar) and f.unit for f in flat):
        measured = [_scalar.as_measured(f) for f in flat if isinstance(f, Scalar)]
        total = _scalar.in_falling_units(measured) if len(measured) == len(flat) else None
        if total is not None:
            return total
    named = [f for f in flat if isinstance(f, Named)]
    if named and isinstance(flat[0], Named) and len(named) in (1, len(flat)):
        names = [f.name for f in named]
        if len(set(names)) == 1:
            inner = tuple(f.form if isinstance(f, Named) else f for f in flat)
            plain = tuple(f.plain if isinstance(f, Named) else f for f in flat)
            return Named(names[0], _listed(inner, joints), _listed(plain, joints))
        return _records(named)
    return _listed(tuple(flat), joints)


def _listed(forms: tuple[Form, ...], joints: set[str]) -> Form:
    ordered = any(isinstance(f, Text) and f.words == "..." for f in forms)
    if "or" in joints and len({f.key for f in forms}) == 1:
        return forms[0]
    return Group("list", forms, ordered, either="or" in joints)


def _records(named: list[Named]) -> Form:
    names = [f.name for f in named]
    period = names.index(names[0], 1) if names[0] in names[1:] else len(names)
    if names != names[:period] * (len(names) // period) or len(set(names[:period])) != period:
        raise Unreadable("left-hand sides that repeat out of turn")
    records = [
        Record(tuple(names[:period]), tuple(f.plain for f in named[k : k + period]))
        for k in range(0, len(named), period)
    ]
    return records[0] if len(records) == 1 else Group("list", tuple(records))


def apart(regions: list[Region]) -> Region | None:
    """Return the union of regions that have no number in common; None where some have."""
    for k, region in enumerate(regions):
        if any(intersection([region, other]).pieces for other in regions[:k]):
            return None
    return union(regions)


def _points_and_regions(forms: list[Form]) -> list[Region] | None:
    """Return ``x = 3 or 5 < x < 7`` as regions of one variable, or None."""
    name = next(f.variable for f in forms if isinstance(f, Region))
    found: list[Region] = []
    for form in forms:
        if isinstance(form, Named) and form.name == name and isinstance(form.plain, Scalar):
            end = End(form.plain.value, True)
            found.append(interval(end, end, name))
        elif isinstance(form, Region) and form.variable == name:
            found.append(form)
        else:
            return None
    return found
