"""Rollouts that are conversations of several turns with a world, trained on as the ids that were sampled.

The policy's replies are sampled turn by turn, side by side. A later turn's prompt is the old prompt, the sampled ids
and the glue of the world's turn (`selfevolve.sampling.turns`); nothing is rendered twice. So the loss mask follows from
lengths: 1 on sampled ids, 0 on glue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from selfevolve.sampling import FinishReason, Prompt, Reply, Sampling
from selfevolve.sampling.decoding import Completion
from selfevolve.sampling.turns import TurnFormatter
from selfevolve.train.rollouts import Clock, Maker, Played, Stage
from selfevolve.train.spec import CONTEXT_EXHAUSTED, Conversations, SessionReward, TrainingError


@dataclass
class Transcript:
    """The ids of one conversation as it grows."""

    opening: list[int]
    later: list[int] = field(default_factory=list)  # all ids after the opening prompt, up to the last reply's end
    written: list[int] = field(default_factory=list)  # of `later`; 1: sampled from the policy
    glue: list[int] = field(default_factory=list)  # the world's last turn, until it is answered
    turns: int = 0  # the policy's replies
    cut: bool = False  # a reply met the token limit
    exhausted: bool = False  # there was no room for a reply

    @property
    def prompt(self) -> list[int]:
        """Return the ids that the next reply follows."""
        return [*self.opening, *self.later, *self.glue]

    def say(self, ids: Sequence[int], stopped: bool) -> None:
        """Append a sampled reply; ``stopped``: the policy ended it."""
        self.later += [*self.glue, *ids]
        self.written += [0] * len(self.glue) + [1] * len(ids)
        self.glue = []
        self.turns += 1
        self.cut = self.cut or not stopped

    def played(self, outcome: Any, filler: int) -> Played:
        """Return the finished conversation; one without a reply gets one id that carries no gradient."""
        later, written = (self.later, self.written) if self.later else ([filler], [0])
        return Played(self.opening, later, written, self.cut, outcome, self.turns, self.exhausted)


class LivePolicy:
    """The policy with its current weights as a `KeyedSampler`, for the world's own use."""

    name = "policy"

    def __init__(self, sampler: Any, ready: Callable[[], AbstractContextManager[Any]], clock: Clock) -> None:
        """Keep the sampler; ``ready`` makes the context in which it can be used."""
        self.sampler, self.ready, self.clock = sampler, ready, clock

    def sample(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[list[Reply]]:
        """Return ``sampling.n`` replies for each prompt, in order; axes ``[prompt][sample]``."""
        return self.sample_keyed(prompts, sampling, range(len(prompts)))

    def sample_keyed(self, prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[int]) -> list[list[Reply]]:
        """Return replies as `sample` does; random numbers hang on a key a prompt in place of its position."""
        with self.clock.part("generate"), self.ready():
            replies: list[list[Reply]] = self.sampler.sample_keyed(prompts, sampling, keys)
        return replies


class ConversationMaker(Maker):
    """Plays a conversation a place, and has all of them rewarded at once."""

    def __init__(self, stage: Stage, conversations: Conversations, reward: SessionReward) -> None:
        """Keep what the batches are made of, the world, and what scores the outcomes of all places."""
        super().__init__(stage)
        self.conversations, self.reward = conversations, reward
        self.turns = TurnFormatter(stage.formatter, stage.end_ids)
        self.filler = stage.end_ids[0]  # stands in for a conversation without a reply
        # the longest prompt in tokens that leaves room for a reply
        self.limit = None if stage.context is None else stage.context - stage.spec.max_new_tokens

    def play(
        self,
        step: int,
        places: Sequence[int],
        row_of: Sequence[int],
        sampler: Any,
        ready: Callable[[], AbstractContextManager[Any]],
    ) -> list[Played]:
        """Play the conversations of this process's places to their end."""
        policy = LivePolicy(sampler, ready, self.clock)
        with self.clock.part("world"):
            openings = self.conversations.begin(step, places, [self.rows[row] for row in row_of])
        _expect(len(openings), len(places), "opening prompts")
        ids = self.turns.formatter.ids(openings)
        transcripts = {place: Transcript(opening) for place, opening in zip(places, ids, strict=True)}
        empty = [place for place in places if not transcripts[place].opening]
        if empty:
            raise TrainingError(f"the opening prompt of place {empty[0]} has no tokens", "Give it at least one.")
        asked, turn = list(places), 0
        while asked:
            turn += 1
            replies = self._replies({place: transcripts[place] for place in asked}, self.sampling(step, turn), policy)
            with self.clock.part("world"):
                said = self.conversations.answer(replies, policy)
            if set(said) != set(asked):
                raise TrainingError(
                    f"the world answered {len(said)} conversations and was told the replies of {len(asked)}",
                    "Return one entry for each place of `replies`, None where the conversation is over.",
                )
            asked = [place for place in asked if self._heard(transcripts[place], said[place])]
        with self.clock.part("world"):
            outcomes = self.conversations.outcomes(places)
        _expect(len(outcomes), len(places), "outcomes")
        return [
            transcripts[place].played(outcome, self.filler) for place, outcome in zip(places, outcomes, strict=True)
        ]

    def score(self, step: int, row_of: Sequence[int], outcomes: Sequence[Any], sampler: Any) -> Sequence[float | None]:
        """Return the reward of all conversations."""
        with self.clock.part("reward"):
            return self.reward(step, outcomes)

    def _replies(
        self, transcripts: Mapping[int, Transcript], sampling: Sampling, policy: LivePolicy
    ) -> dict[int, Reply]:
        """Sample the next reply of each conversation that has room for it, and append it; all get a `Reply`."""
        prompts = {place: transcript.prompt for place, transcript in transcripts.items()}
        fit = [place for place, ids in prompts.items() if self.limit is None or len(ids) <= self.limit]
        drawn: list[Completion] = []
        if fit:
            with self.clock.part("generate"), policy.ready():
                groups = policy.sampler.sample_ids([prompts[place] for place in fit], sampling, keys=fit)
            drawn = [group[0] for group in groups]
        texts = policy.sampler.texts(drawn)
        completions = dict(zip(fit, drawn, strict=True))
        replies: dict[int, Reply] = {}
        for place, ids in prompts.items():
            completion = completions.get(place)
            if completion is None:
                transcripts[place].exhausted = True
                replies[place] = Reply("", FinishReason.ERROR, len(ids), 0, CONTEXT_EXHAUSTED)
            else:
                transcripts[place].say(completion.ids, completion.stopped)
                reason = FinishReason.STOP if completion.stopped else FinishReason.LENGTH
                text = self.turns.formatter.opened(ids) + texts[completion.ids]
                replies[place] = Reply(text, reason, len(ids), len(completion.ids), seed=sampling.seed)
        return replies

    def _heard(self, transcript: Transcript, content: str | None) -> bool:
        """Take the world's next turn; return whether the policy is asked again."""
        if content is None or transcript.exhausted:
            return False
        transcript.glue = self.turns.glue(transcript.later, content)
        return True


def _expect(found: int, places: int, what: str) -> None:
    if found != places:
        raise TrainingError(
            f"the world returned {found} {what} for {places} conversations", "Return one each, in order."
        )
