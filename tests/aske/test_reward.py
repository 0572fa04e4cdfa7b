import numpy as np
import pytest

from aske.labels import Label
from aske.reward import Memory, RewardSettings, calibration, score, unit_rows

# unit vectors on a plane, by the angle in the question's text
ANGLES = {"q0": 0.0, "q60": 60.0, "q90": 90.0, "q180": 180.0}


def embed(questions):
    angles = np.radians([ANGLES[q] for q in questions])
    return 3.0 * np.stack([np.cos(angles), np.sin(angles)], axis=1)  # not of length 1: `score` scales


@pytest.mark.parametrize(
    ("label", "expected"),
    [(Label.CALIBRATED, 1.0), (Label.TOO_EASY, 0.2), (Label.TOO_HARD, -0.2), (Label.NO_QUESTION, 0.0),
     (Label.BAD_CROSS_CHECK, 0.0), (Label.UNGRADABLE, None)],
)  # fmt: skip
def test_the_calibration_term(label, expected):
    assert calibration(label) == expected


def test_the_format_term():
    """-0.05 a malformed turn; the diversity term is 0 without a memory."""
    rewards = score(list(Label), [0, 1, 2, 4, 0, 3], ["q0"] * 3 + [None] + ["q0"] * 2)
    assert [None if r is None else round(r.total, 9) for r in rewards] == [1.0, 0.15, -0.3, -0.2, 0.0, None]
    assert rewards[1].terms == {"calibration": 0.2, "format": -0.05, "diversity": 0.0}
    assert str(rewards[0].terms["format"]) == "0.0"


def test_the_diversity_term_by_hand():
    """Memory: 0 and 90 degrees. 60 degrees lies at cosines 1/2 and sqrt(3)/2, so its mean is 0.683; 180 at -1 and 0."""
    memory = Memory()
    memory.add(["q0", "q90"], unit_rows(embed(["q0", "q90"])))
    labels = [Label.CALIBRATED, Label.TOO_EASY, Label.TOO_HARD, Label.BAD_CROSS_CHECK, Label.CALIBRATED]
    rewards = score(labels, [0] * 5, ["q60", "q60", "q60", "q60", "q180"], memory=memory, embed=embed)
    mean = (0.5 + np.sqrt(3) / 2) / 2
    expected = [1 * (1 - mean), 0.2 * (1 - mean), 0.0, 0.0, 1 + 0.5]
    assert [r.terms["diversity"] for r in rewards] == pytest.approx(expected)
    assert [r.total for r in rewards] == pytest.approx([2 - mean, 0.2 * (2 - mean), -0.2, 0.0, 2.5])
    nearest = score(
        [Label.CALIBRATED], [0], ["q60"], RewardSettings(neighbours=1, alpha=0.5), memory_of("q0", "q90"), embed
    )
    assert nearest[0].terms["diversity"] == pytest.approx(0.5 * (1 - np.sqrt(3) / 2))


def memory_of(*questions: str) -> Memory:
    memory = Memory()
    memory.add(questions, unit_rows(embed(questions)))
    return memory


def test_a_batch_is_scored_against_the_memory_before_it():
    memory = Memory()
    first = score([Label.CALIBRATED] * 2, [0, 0], ["q0", "q0"], memory=memory, embed=embed)
    assert [r.terms["diversity"] for r in first] == [1.0, 1.0]  # the memory was empty, and twins do not see each other
    second = score([Label.CALIBRATED], [0], ["q0"], memory=memory, embed=embed)
    assert second[0].terms["diversity"] == pytest.approx(0.0)
    assert memory.questions == ["q0", "q0", "q0"]


def test_what_is_remembered():
    """Every final question that could be graded, in order; none that could not, none that is not there."""
    memory = Memory()
    labels = [Label.UNGRADABLE, Label.TOO_HARD, Label.NO_QUESTION, Label.BAD_CROSS_CHECK, Label.CALIBRATED]
    score(labels, [0] * 5, ["q0", "q60", None, "q90", "q180"], memory=memory, embed=embed)
    assert memory.questions == ["q60", "q90", "q180"]
    assert memory.vectors is not None and np.allclose(np.linalg.norm(memory.vectors, axis=1), 1)
    score([Label.UNGRADABLE], [0], ["q0"], memory=memory, embed=embed)
    assert len(memory) == 3


def test_only_the_last_ones_are_remembered():
    memory = Memory(size=3)
    for batch in (["q0", "q60"], ["q90"], ["q180", "q0"]):
        score([Label.TOO_EASY] * len(batch), [0] * len(batch), batch, memory=memory, embed=embed)
    assert memory.questions == ["q90", "q180", "q0"] and memory.vectors is not None
    assert np.allclose(memory.vectors, unit_rows(embed(["q90", "q180", "q0"])))
    score([Label.TOO_EASY] * 4, [0] * 4, ["q0", "q60", "q90", "q180"], memory=memory, embed=embed)
    assert memory.questions == ["q60", "q90", "q180"]


def test_the_nearest_of_many():
    rng = np.random.default_rng(0)
    stored, asked = unit_rows(rng.normal(size=(50, 8))), unit_rows(rng.normal(size=(7, 8)))
    memory = Memory()
    memory.add([str(i) for i in range(50)], stored)
    for k in (1, 5, 50, 99):
        by_hand = [sorted(row, reverse=True)[:k] for row in (asked @ stored.T).tolist()]
        assert memory.similarity(asked, k) == pytest.approx([sum(row) / len(row) for row in by_hand])
    assert Memory().similarity(asked, 5) == [0.0] * 7


def test_a_vector_of_zeros_is_like_nothing():
    assert unit_rows(np.zeros((2, 3))).tolist() == [[0.0] * 3] * 2
    memory = Memory()
    memory.add(["q"], np.zeros((1, 2)))
    assert memory.similarity(unit_rows(np.ones((1, 2))), 5) == [0.0]


def test_save_and_load(tmp_path):
    path = tmp_path / "memory.json"
    memory = Memory(size=2)
    score([Label.TOO_EASY] * 3, [0] * 3, ["q0", "q60", "q90"], memory=memory, embed=embed)
    memory.save(path)
    memory.save(path)
    again = Memory.load(path, embed)
    assert (again.size, again.questions) == (2, ["q60", "q90"]) and np.allclose(again.vectors, memory.vectors)
    assert [p.name for p in tmp_path.iterdir()] == ["memory.json"]
    after = [score([Label.CALIBRATED], [0], ["q0"], memory=m, embed=embed)[0].total for m in (memory, again)]
    assert after[0] == pytest.approx(after[1]) and again.questions == memory.questions
    Memory(4).save(path)
    assert (len(Memory.load(path, embed)), Memory.load(path, embed).size) == (0, 4)


def test_alpha_0_needs_no_embedder():
    memory = Memory()
    rewards = score([Label.CALIBRATED], [0], ["q0"], RewardSettings(alpha=0), memory)
    assert rewards[0].total == 1.0 and len(memory) == 0


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="without an embedder"):
        score([Label.CALIBRATED], [0], ["q0"], memory=Memory())
    memory = Memory()
    with pytest.raises(ValueError, match="1 labels, 2 counts and 1 questions"):
        score([Label.CALIBRATED], [0, 0], ["q0"], memory=memory, embed=embed)
    assert len(memory) == 0
    for wrong in ({"neighbours": 0}, {"memory": 0}, {"alpha": -1.0}):
        with pytest.raises(ValueError, match="must be 1 or more"):
            RewardSettings(**wrong)
    with pytest.raises(ValueError, match="size is 0"):
        Memory(0)


def test_settings_change_the_numbers():
    settings = RewardSettings(
        calibrated=2, too_easy=0, too_hard=-1, no_question=-0.5, bad_cross_check=-0.25, malformed=-0.1
    )
    rewards = score(list(Label), [1] * 6, [None] * 6, settings)
    assert [None if r is None else round(r.total, 9) for r in rewards] == [1.9, -0.1, -1.1, -0.6, -0.35, None]
