r"""Rarer spellings of one thing, put into the usual one: foreign brackets, bases in words, hours, angles in minutes.

Each rule keeps the value: ``]1,3[`` is ``(1,3)``, ``1101 base 2`` is ``1101_2``, ``9 a.m.`` is ``9:00 am``.
"""

from __future__ import annotations

import re
import unicodedata

from selfevolve.answers._words import words

WHOLE_LENGTH = 200  # characters of an answer that is one odd spelling as a whole

_BASES = {w: str(k) for k, w in enumerate(words("two three four five six seven eight nine ten eleven twelve"), 2)}
_BASES["sixteen"] = "16"
_NAMED_BASE = re.compile(r"_\{?\s*\\(?:text|mathrm|textrm)\s*\{\s*\(?([a-z]+|\d+)\)?\s*\}\s*\}?")
_BRACKETED_DIGITS = re.compile(r"(?<![A-Za-z\d])\(([\dA-F]+)\)(?=_)")
_BRACKETED_BASE = re.compile(r"_\{?\(([2-9]|[12]\d|3[0-6])\)\}?")
_IN_BASE = re.compile(
    r"([\dA-F.]+)\s*(?:\\(?:text|mathrm)\s*\{)?\s*,?\s*\(?(?:in )?base[\s$-]*\}?\s*(\d+|[a-z]+)[\s$]*\)?\}?"
)
_PREFIXED = re.compile(r"0(?:[bB]([01]+)|[xX]([\dA-Fa-f]+)|[oO]([0-7]+))")
_HOUR = re.compile(
    r"(\d{1,2})(:[0-5]\d)?\s*(?:\\(?:text|mathrm)\s*\{)?\s*(?:([aApP])\.?\s?[mM]\.?|(noon|midnight))\s*\}?"
)
_MINUTES_OF_ARC = re.compile(
    r"(-?)(\d+)\s*\^\s*\{?\s*\\(?:circ|degree)\s*\}?\s*(\d+)\s*(?:'|\^\{?\\prime\}?)"
    r"(?:\s*(\d+(?:\.\d+)?)\s*(?:''|\"|\^\{?\\prime\\prime\}?))?"
)
_TO = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:\\text\{)?\s*to\s*\}?\s*(\d+(?:\.\d+)?)(?:\s*(?:\\text\{)?\s*to\s*\}?\s*(\d+))?"
)
_CHOSEN = re.compile(r"(?:\{\})?[\^_]\{?(\d+)\}?\s*(?:\\(?:text|mathrm|rm)\s*)?\{?([CP])\}?_\{?(\d+)\}?")
_CHOSEN_BEHIND = re.compile(r"(?<![A-Za-z\\])(?:\\(?:text|mathrm)\{C\}|C)_\{?(\d+)\}?\^\{?(\d+)\}?")
_SLANTED = re.compile(r"\^\{?(\d+)\}?\s*/\s*_\{?(\d+)\}?")
_COLOUR = re.compile(r"\\(?:textcolor|color)\s*\{[A-Za-z0-9!]*\}")
_NOT_SHOWN = re.compile(r"\\[hv]?phantom\s*\{[^{}]*\}|\\therefore(?![a-zA-Z])|\\label\s*\{[^{}]*\}")
_WRAPPED = re.compile(r"\\(?:underline|ensuremath|mathstrut|uline)(?![a-zA-Z])")
_ROOT_OF = re.compile(r"\\root\s*\{?\s*(\w+)\s*\}?\s*\\of(?![a-zA-Z])")
_ALIGNED = re.compile(r"\\(begin|end)\{(?:aligned|align|gathered|gather|split|equation)\*?\}")
_MAPS = re.compile(r"(?:([a-zA-Z])\s*:\s*)?([a-zA-Z])\s*\\mapsto(?![a-zA-Z])")
_DOTTED = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3}){2,}(?![\d.])(?:,\d+(?![\d,]))?")  # 1.234.567,89
_QUOTED = re.compile(r"(?<![\d.,'])[1-9]\d{0,2}(?:'\d{3})+(?![\d'])")  # 1'234'567
_OVERLINED = re.compile("((?:\\d[\u0304\u0305])+)")
_LABELLED_DOTS = re.compile(r"\\dot\s*\{?(\d)\}?(\d*)\\dot\s*\{?(\d)\}?")
_WIDE = re.compile("[\uff01-\uff5e\U0001d400-\U0001d7ff\u2145-\u2149]")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_CURRENCY_CODE = re.compile(r"(-?)\s*(?:\\text\{)?\s*(US\\?\$|USD|EUR|GBP|INR|Rs\.?)\s*\}?\s*(?=\d|\.\d)")
_CODES = {"USD": "\\usd ", "US$": "\\usd ", "US\\$": "\\usd ", "EUR": "\\eur ", "GBP": "\\gbp ", "INR": "\\inr "}
_UNIT_QUOTIENT = re.compile(
    r"(?:\\[,; ]|~)?\s*\\[dt]?frac\s*\{\s*\\(?:text|mathrm)\s*\{([^{}]*)\}\s*\}\s*"
    r"\{\s*\\(?:text|mathrm)\s*\{([^{}]*)\}(\s*\^\s*\{?\d\}?)?\s*\}"
)
_CUP_LETTER = re.compile(r"(?<=[)\]}])\s*U\s*(?=\\?[(\[{])")
_IN_WORD = re.compile(r"([A-Za-z])\s+in\s+(?=\\?[(\[{])")
_EXCEPT = re.compile(
    r"(?:\\text\{)?\s*(?:x is )?all real (?:numbers|values)(?: of x| x)?,? (?:except|other than|but|besides)"
    r"(?: for| when)?\s*\}?\s*\$?\s*(?:[a-z]\s*=\s*)?([-\d.,/]+|\\frac\{-?\d+\}\{\d+\})\s*\}?\$?",
    re.IGNORECASE,
)
_AFTER_PARTS = re.compile(r"\s?\(\s*(?:approx(?:imately|\.)?|rounded|about|exact(?:ly)?)\s*\)\.?$", re.IGNORECASE)
_LEADING = re.compile(
    r"(?:exactly|precisely|only|simply|about|approximately|roughly|around)\s+(?=[-\d$\\.])", re.IGNORECASE
)
_ONLY_TEXT = re.compile(r"\\(?:text|textrm|mbox)\s*\{([^{}\\]*)\}")
_TAGS = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"\A#{2,}\s+")


def plain_characters(text: str) -> str:
    """Return ``text`` with wide, mathematical and vulgar-fraction characters spelt out."""
    out = _OVERLINED.sub(lambda m: "\\overline{" + re.sub("[\u0304\u0305]", "", m.group(1)) + "}", text)
    out = _WIDE.sub(lambda m: unicodedata.normalize("NFKC", m.group()), out)
    return _VULGAR.sub(_vulgar, out)


def _vulgar(match: re.Match[str]) -> str:
    top, _, bottom = unicodedata.normalize("NFKC", match.group()).partition("\u2044")
    return f"\\frac{{{top}}}{{{bottom}}}" if bottom else match.group()


def usual(text: str) -> str:
    """Return a text with its rarer spellings put into the usual ones; before the commands are cleaned."""
    text = re.sub(r"\s+", " ", text).strip()  # long runs of blanks would make the patterns below slow
    tag = _TAGS.fullmatch(text)
    out = _HASHES.sub("", tag.group(1) if tag else text)
    out = _AFTER_PARTS.sub("", out)
    out = _LEADING.sub("", out, count=1) if _LEADING.match(out) else out
    only_text = _ONLY_TEXT.fullmatch(out.strip())
    core = (only_text.group(1) if only_text else out).strip().rstrip(".")
    for pattern, change in _WHOLE if len(core) <= WHOLE_LENGTH else ():
        found = pattern.fullmatch(core)
        if found:
            return str(change(found))
    if "'" in out:
        out = _QUOTED.sub(lambda m: m.group().replace("'", ""), out)
    if out.count(".") > 1:
        out = _DOTTED.sub(lambda m: m.group().replace(".", "").replace(",", "."), out)
    out = _CURRENCY_CODE.sub(lambda m: m.group(1) + _CODES.get(m.group(2), "\\inr "), out, count=1)
    out = _CUP_LETTER.sub(r"\\cup ", out) if "," in out else out
    out = _IN_WORD.sub(r"\1 \\in ", out)
    if "_" in out:
        out = _bases(out)
    if "\\" in out:
        out = _commands(out)
    if "&" in out and "\\begin" not in out:
        out = re.sub(r"\\?&", " and ", out)
    return _foreign_brackets(out) if "[" in out or "]" in out else out


def _bases(out: str) -> str:
    out = _NAMED_BASE.sub(lambda m: f"_{{{_BASES[m.group(1)]}}}" if m.group(1) in _BASES else m.group(), out)
    out = _BRACKETED_DIGITS.sub(r"\1", _BRACKETED_BASE.sub(r"_{\1}", out))
    out = _CHOSEN.sub(_chosen, _SLANTED.sub(r"\\frac{\1}{\2}", out))
    return _CHOSEN_BEHIND.sub(lambda m: _binomial(m.group(1), m.group(2)) or m.group(), out)


def _chosen(match: re.Match[str]) -> str:
    n, kind, k = match.groups()
    plain = _binomial(n, k)
    if not plain:
        return match.group()
    return plain if kind == "C" else f"{plain}\\cdot {k}!"


def _binomial(n: str, k: str) -> str:
    return f"\\binom{{{n}}}{{{k}}}" if int(n[:9]) >= int(k[:9]) else ""


def _commands(out: str) -> str:
    out = _WRAPPED.sub("", _NOT_SHOWN.sub("", _COLOUR.sub("", out)))
    out = _ROOT_OF.sub(r"\\sqrt[\1]", out)
    out = out.replace("\\lbrace", "\\{").replace("\\rbrace", "\\}").replace("\\lbrack", "[").replace("\\rbrack", "]")
    out = re.sub(r"\\([ij])math(?![a-zA-Z])", r"\1", out)
    out = re.sub(r"\{:\}|\\colon(?![a-zA-Z])", ":", out)
    out = re.sub(r"\\text\s*\{\s*\\?%\s*\}", "%", out)
    out = re.sub(r"(\\mathbb\s*\{?\s*[RQZNC]\s*\}?)\s*-\s*(?=\\\{|\[|\()", r"\1 \\setminus ", out)
    out = _LABELLED_DOTS.sub(r"\\overline{\1\2\3}", out)
    out = re.sub(r"\\text\s*\{\s*per cent\s*\}", "%", out)
    out = _UNIT_QUOTIENT.sub(r" \\text{ \1/\2}\3", out)
    out = _MAPS.sub(lambda m: f"{m.group(1) or 'f'}({m.group(2)}) = ", out, count=1)
    if _ALIGNED.search(out):
        inner = _ALIGNED.sub("", out)
        out = inner if "\\begin" in inner else re.sub(r"(?<!\\)&", "", inner)
    if re.search(r"\\over(?![a-zA-Z])", out) and not out.lstrip().startswith("{"):
        out = "{" + out + "}"
    return out


def _foreign_brackets(out: str) -> str:
    """Return intervals such as ``]1,3[`` with round brackets for the open ends."""
    plain = re.sub(r"\\(?:left|right|bigg?[lr]?)\s*(?=[\[\]()])", "", out)
    parts = re.split(r"(\\cup|\\cap|\\in(?![a-z])|\\setminus|\\text\s*\{\s*(?:or|and)\s*\}|\bor\b)", plain)
    changed = False
    for k, part in enumerate(parts):
        found = re.fullmatch(r"(\s*)([\[\]])([^\[\]()]+[,;][^\[\]()]+)([\[\]])([\s.$]*)", part)
        if found and (found.group(2), found.group(4)) != ("[", "]"):
            low, high = "(" if found.group(2) == "]" else "[", ")" if found.group(4) == "[" else "]"
            parts[k] = found.group(1) + low + found.group(3) + high + found.group(5)
            changed = True
    return "".join(parts) if changed else out


def _hour(match: re.Match[str]) -> str:
    hour, minutes, half, noon = match.groups()
    if not 1 <= int(hour) <= 12 or (noon and int(hour) != 12):
        return match.group()
    half = f"{half.lower()}m" if half else "pm" if noon == "noon" else "am"
    return f"{hour}{minutes or ':00'} {half}"


def _arc(match: re.Match[str]) -> str:
    sign, degrees, minutes, seconds = match.groups()
    if int(minutes) >= 60 or float(seconds or 0) >= 60:
        return match.group()
    return f"{sign}({degrees}+\\frac{{{minutes}}}{{60}}+\\frac{{{seconds or 0}}}{{3600}})^\\circ"


def _prefixed(match: re.Match[str]) -> str:
    digits, base = next((d, b) for d, b in zip(match.groups(), (2, 16, 8), strict=True) if d)
    return str(int(digits, base)) if len(digits) < 2000 else match.group()


def _in_base(match: re.Match[str]) -> str:
    base = _BASES.get(match.group(2), match.group(2))
    return f"{match.group(1)}_{{{base}}}" if base.isdigit() else match.group()


_WHOLE = (
    (_IN_BASE, _in_base),
    (_PREFIXED, _prefixed),
    (_HOUR, _hour),
    (_MINUTES_OF_ARC, _arc),
    (_TO, lambda m: ":".join(part for part in m.groups() if part)),
    (re.compile(r"(-?\d+)\s*(?:\\text\{)?\s*mod\s*\}?\s*(\d+)"), lambda m: f"({m.group(1)}) \\bmod {m.group(2)}"),
    (_EXCEPT, lambda m: f"\\mathbb{{R}} \\setminus \\{{{m.group(1)}\\}}"),
    (re.compile(r"\{\s*\}"), lambda m: "\\{\\}"),
    (re.compile(r"~\s*(-?[\d.]+)"), lambda m: m.group(1)),
    (re.compile(r"\+/-\s*([\w.\\{}/]+)"), lambda m: f"\\pm {m.group(1)}"),
    (re.compile(r"(?:noon|midday)"), lambda m: "12:00 pm"),
    (re.compile(r"midnight"), lambda m: "12:00 am"),
)
