import pytest
from aske_helpers import PACK

from aske import AskeError, load_pack
from aske.prompts import SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_packs_load_and_fill(name):
    pack = load_pack(name)
    assert pack.name == name
    said = [m.content for m in (*pack.open(4, 200), *pack.open(0, 200), pack.after_probe("one", "two", 3),
                                pack.after_probe("one", "two", 0), pack.after_lost(2), pack.after_lost(0),
                                *pack.solver("q"))]  # fmt: skip
    assert not [text for text in said if "{" in text.replace("\\boxed{", "")]
    assert pack.solver("q")[-1].content.rstrip().endswith("q")


def test_the_standard_texts_say_what_the_game_is():
    assert "4 probe questions" in PACK.open(4, 200)[-1].content
    assert "at most 200 words" in PACK.open(4, 200)[-1].content
    assert "at most 50 words" in PACK.open(0, 50)[-1].content
    for turn in (PACK.open(4, 200)[-1], PACK.open(0, 200)[-1], PACK.after_probe("a", "b", 1), PACK.after_probe("a", "b", 0),
                 PACK.after_lost(1), PACK.after_lost(0)):  # fmt: skip
        for section in ("#Reasoning#", "#Draft#", "#Question#"):
            assert section in turn.content
    assert "\\boxed{}" in (PACK.solve_system or "") and "Summary:" in (PACK.solve_system or "")


def test_braces_are_left_alone():
    assert PACK.solver("Let $\\frac{a}{b}$ and {x}")[-1].content == "Let $\\frac{a}{b}$ and {x}"
    assert "{shown_1}" in PACK.after_probe("{shown_1}", "{shown_2}", 1).content
    assert PACK.fill_shown("{answer}", "5") == "{answer}\nFinal answer: 5"


def test_a_file_changes_some_texts(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("solve: 'Solve: {question}'\nasker_system: null\n")
    pack = load_pack(str(path))
    assert (pack.name, pack.solver("q")[-1].content, pack.asker_system) == ("mine", "Solve: q", None)
    assert pack.opening == PACK.opening


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("opning: x", "unknown key 'opning'"),
        ("solve: no placeholder", "'solve' lacks the placeholder {question}"),
        ("results: '{shown_1}'", "'results' lacks the placeholder {shown_2}"),
        ("shown: '{summary}'", "'shown' lacks the placeholder {answer}"),
        ("summary: both", "summary is 'both'"),
        ("summary: null", "'summary' is None; it must be a text"),
        ("opening: null", "'opening' is None; it must be a text"),
        ("opening: 5", "'opening' is 5; it must be a text"),
        ("- a", "holds list"),
        ("", "holds NoneType"),
        ("a: b: c", "cannot be read"),
        (b"\xff\xfe\xfa", "cannot be read"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path, written, message):
    path = tmp_path / "mine.yaml"
    path.write_bytes(written if isinstance(written, bytes) else written.encode())
    with pytest.raises(AskeError) as caught:
        load_pack(str(path))
    assert message in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["standart", "no/such.yaml", ""])
def test_a_missing_pack_is_refused(name):
    with pytest.raises(AskeError, match="none of standard, testbed"):
        load_pack(name)


def test_a_file_that_is_named_like_a_shipped_pack_is_refused(tmp_path):
    """Records name their pack; a second "standard" would be taken for the shipped one when they are graded anew."""
    path = tmp_path / "standard.yaml"
    path.write_text("no_answer: '-'")
    with pytest.raises(AskeError, match="has the name of a shipped pack"):
        load_pack(str(path))
