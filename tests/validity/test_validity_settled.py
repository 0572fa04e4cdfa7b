"""The validity vote's early stop, against enumeration."""

from itertools import product

import pytest

from validity import ValidityDecision, Verdict, settled, vote_validity


@pytest.mark.parametrize("denominator", ["answered", "asked"])
@pytest.mark.parametrize("min_answered", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("planned", [1, 4, 5])
def test_settled_is_what_every_continuation_gives(denominator, min_answered, planned):
    """Against enumeration: a decision is settled exactly when no continuation changes it."""
    for length in range(planned + 1):
        for begun in product(Verdict, repeat=length):
            ends = {
                vote_validity([*begun, *rest], denominator, min_answered).decision
                for rest in product(Verdict, repeat=planned - length)
            }
            found = settled(begun, planned, denominator, min_answered)
            if found is not None:
                assert ends == {found}
            elif length == planned:
                assert ends == {ValidityDecision.UNDECIDED}
            elif denominator == "answered" and min_answered == 0.5:
                assert len(ends) > 1 or ends == {ValidityDecision.UNDECIDED}


def test_five_of_nine_settle():
    assert settled([Verdict.VALID] * 5, 9) is ValidityDecision.VALID
    assert settled([Verdict.INVALID] * 5, 9) is ValidityDecision.INVALID
    assert settled([Verdict.VALID] * 4, 9) is None
    assert settled([Verdict.VALID] * 4 + [Verdict.UNDECIDED], 9) is None  # 4 of 9 would be too few answers
    with pytest.raises(ValueError, match="6 verdicts came of 5"):
        settled([Verdict.VALID] * 6, 5)


def test_a_bound_is_met_exactly_where_its_product_is_rounded_up() -> None:
    # 0.28 * 25 is 7.000000000000001 in floats, and 7 of 25 are 28%
    met, missed = [Verdict.VALID] * 7, [Verdict.VALID] * 6
    for said, decision in ((met, ValidityDecision.VALID), (missed, ValidityDecision.UNDECIDED)):
        rest = [Verdict.UNDECIDED] * (25 - len(said))
        assert vote_validity([*said, *rest], "answered", 0.28).decision is decision
    assert settled([*met, *[Verdict.UNDECIDED] * 18], 25, "answered", 0.28) is ValidityDecision.VALID
