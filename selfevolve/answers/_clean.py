# ruff: noqa: RUF001
r"""From an answer as it was written to one plain spelling: no display commands, no Unicode look-alikes.

Nothing here changes a value. Every rule maps one spelling of a thing to another spelling of the same thing
(``\dfrac`` to ``\frac``, a Unicode minus to ``-``, ``1{,}234`` to ``1234``).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from selfevolve.answers._spellings import plain_characters, usual
from selfevolve.answers._words import words

MAX_LENGTH = 20_000  # characters; a longer answer is only compared letter for letter

_GREEK = words(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho varsigma "
    "sigma tau upsilon phi chi psi omega"
)
_CAPITAL_GREEK = {"Γ": "Gamma", "Δ": "Delta", "Θ": "Theta", "Λ": "Lambda", "Ξ": "Xi", "Π": "Pi", "Σ": "Sigma"}
_CAPITAL_GREEK |= {"Φ": "Phi", "Ψ": "Psi", "Ω": "Omega"}
_SUPERSCRIPT = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_SUBSCRIPT = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n", strict=True))

_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‒": "-",
    "﹣": "-", "－": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∗": "*", "÷": "/", "∕": "/", "⁄": "/", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ",
    "≈": r"\approx ", "∞": r"\infty ", "√": r"\sqrt ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "∅": r"\emptyset ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    "°": r"^\circ ", "º": r"^\circ ", "±": r"\pm ", "∓": r"\mp ", "…": r"\ldots ", "⋯": r"\ldots ",
    "′": "'", "″": "''", "’": "'",
    "“": '"', "”": '"', "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}",
    "⅔": r"\frac{2}{3}", "⅕": r"\frac{1}{5}", "⅛": r"\frac{1}{8}", "⟨": r"\langle ", "⟩": r"\rangle ", "∠": r"\angle ",
    "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "∖": r"\setminus ", "→": r"\to ",
    "ϕ": r"\phi ",
    "∛": r"\sqrt[3]", "∜": r"\sqrt[4]", "≡": r"\equiv ", "↦": r"\mapsto ", "∶": ":",
    "∧": r"\land ", "∨": r"\lor ", "∴": "", "∣": "|", "【": "[", "】": "]", "¢": " cents ", "‘": "'",
    "€": r"\eur ", "£": r"\gbp ", "¥": r"\yen ", "₹": r"\inr ", "％": "%", "\u00a0": " ",
    "\u2009": r"\, ", "\u202f": r"\, ", "\u3000": " ", "\u200b": "", "\ufeff": "", "\u2060": "", "\t": " ", "\r": " ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "，": ",", "。": ".", "（": "(", "）": ")", "：": ":", "；": ";",
}  # fmt: skip

_TABLE: dict[int, str] = {ord(k): v for k, v in _SYMBOLS.items()}
_TABLE |= {0x3B1 + i: f"\\{name} " for i, name in enumerate(_GREEK)}
_TABLE |= {ord(k): f"\\{v} " for k, v in _CAPITAL_GREEK.items()}
_TABLE |= {0xFF10 + i: str(i) for i in range(10)}

_RAISED = re.compile("[" + "".join(_SUPERSCRIPT) + "]+")
_LOWERED = re.compile("[" + "".join(_SUBSCRIPT) + "]+")
_THOUSANDS_JOINT = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,\\!|\\text\{,\}|\\[,;: ]|~)\s*(?=\d{3}(?!\d))")
_BLANK_GROUPS = re.compile(
    r"((?:[A-Za-z]\s*=\s*)?[+-]?[1-9]\d{0,2}(?:[ ]\d{3})+(?:\.\d+)?)(\s*(?:\\text|\\mathrm|[A-Za-z%]).*)?"
)
_DELIMITERS = re.compile(r"(?<!\\)\\[()\[\]]")
_SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|middle)(?![a-zA-Z])\s*(?:\.(?=\s|\\|$)|)")
_NO_EFFECT = re.compile(r"\\(?:displaystyle|textstyle|limits|nolimits|hfill|allowbreak)(?![a-zA-Z])")
_SPACES = re.compile(
    r"(?<!\\)\\[,;: ]|\\q?quad|\\(?:thinspace|medspace|enspace|newline)(?![a-zA-Z])|~|\\hspace\{[^{}]*\}"
)
_FRACTIONS = re.compile(r"\\(?:[dtc]|nice|s)frac(?![a-zA-Z])")
_TIMES_TEN = re.compile(r"(?<=[\d.])\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_STARRED = re.compile(r"\*\*(.+?)\*\*(.*)", re.DOTALL)
_PLAIN_RELATIONS = (
    ("\\leqslant", "\\le "), ("\\geqslant", "\\ge "), ("\\leq", "\\le "), ("\\geq", "\\ge "), ("\\neq", "\\ne "),
    ("\\lt", "<"), ("\\gt", ">"), ("!=", "\\ne "), ("<=", "\\le "), (">=", "\\ge "), ("=<", "\\le "), ("==", "="),
)  # fmt: skip
_RELATION_TABLE = dict(_PLAIN_RELATIONS)
_RELATION = re.compile(
    "|".join(re.escape(old) + (r"(?![a-zA-Z])" if old[0] == "\\" else "") for old, _ in _PLAIN_RELATIONS)
)
_PROGRAM = re.compile(r"\b(?:np|numpy|math|Math|sympy)\.(E|PI|[a-z]+[0-9]*)(?![A-Za-z_.])")  # as in np.sqrt, Math.PI
_CONSTANTS = {"E": "e", "PI": "pi"}
_DOUBLED = re.compile(
    r"\\\\(?=(?:[dtc]?frac|left|right|sqrt|leq?|geq?|neq?|text|boxed|pi|infty|cdot|times|pm|in|circ)(?![a-zA-Z]))"
)


def _brace(mark: str, letters: dict[str, str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        plain = "".join(letters[c] for c in match.group())
        return mark + (plain if plain.isdigit() and len(plain) == 1 else "{" + plain + "}")

    return replace


def clean(text: str) -> str:
    """Return one plain spelling of ``text``; the value it states stays the same."""
    out = text
    if not out.isascii():
        out = plain_characters(out)
        out = _RAISED.sub(_brace("^", _SUPERSCRIPT), out)
        out = _LOWERED.sub(_brace("_", _SUBSCRIPT), out)
        out = out.translate(_TABLE)
    out = out.replace("\t", " ").replace("\r", " ").strip()
    starred = _STARRED.match(out)
    if starred:
        out = (starred.group(1) + starred.group(2)).strip()
    out = usual(out)
    out = _THOUSANDS_JOINT.sub("", out)
    if "\\" in out:
        out = _clean_commands(out)
    if "$" in out:
        out = _drop_dollars(out)
    if "." in out:
        out = _PROGRAM.sub(lambda m: _CONSTANTS.get(m.group(1), m.group(1)), out)
    if "10" in out:
        out = _TIMES_TEN.sub(r" \\times ", out)
    if len(out) > 2 and out[0] == out[-1] == '"':
        out = out[1:-1].strip()
    out = _RELATION.sub(lambda m: _RELATION_TABLE[m.group()], out.replace("**", "^"))
    out = out.strip().strip("`").strip()
    while out and (out[-1] in " .,;\\\n" or out.endswith("\\n")):
        if out.endswith("...") or out.endswith("\\ "):
            break
        out = out[:-1]
    grouped = _BLANK_GROUPS.fullmatch(out)
    if grouped:
        out = grouped.group(1).replace(" ", "") + (grouped.group(2) or "")
    return out.strip()


def _clean_commands(out: str) -> str:
    out = undouble(out)
    out = out.replace("\\$", "\\usd ").replace("\\%", "%").replace("\\*", "*").replace("\\#", "#")
    out = _DELIMITERS.sub(" ", out)
    out = _SIZES.sub("", out)
    out = _NO_EFFECT.sub("", out)
    out = re.sub(r"\\mathbb\s+([A-Z])", r"\\mathbb{\1}", out)
    out = _SPACES.sub(" ", out.replace("\\!", ""))
    return _FRACTIONS.sub(r"\\frac", out)


def undouble(text: str) -> str:
    """Halve the backslashes of commands that were escaped twice; in an environment a double one ends a row."""
    return text if "\\begin" in text else _DOUBLED.sub(r"\\", text)


def _drop_dollars(out: str) -> str:
    """Drop the marks of inline mathematics; a lone mark before a digit is money."""
    if out.count("$") == 1:
        return re.sub(r"\$(?=\s*[\d.])", r"\\usd ", out).replace("$", " ")
    return out.replace("$", " ")
