"""The loop that all protocols with rounds share: what is asked, saved and said, however
it ends.
"""

from collections.abc import Mapping

import pytest

from understudy.ground.errors import BudgetExceeded
from understudy.protocols.core import Progress
from understudy.protocols.core.loop import run_rounds


class Rounds:
    """Rounds of nothing, of which one may fail; what was saved is the last round that
    was done.
    """

    def __init__(
        self, done: int = 0, *, fails: int = 0, by: type[BaseException] = BudgetExceeded
    ) -> None:
        self.done = done
        self.fails = fails
        self.by = by
        self.asked: list[int] = []
        self.saved: list[int] = []
        self.seen: list[Progress] = []

    def step(self, round: int) -> None:
        self.asked.append(round)
        if round == self.fails:
            raise self.by("no more")
        self.done = round

    def run(self, total: int, every: int = 2) -> str:
        def spent() -> Mapping[str, float]:
            return {"clinic": float(self.done)}

        return run_rounds(
            total,
            self.step,
            done=self.done,
            save=lambda: self.saved.append(self.done),
            every=every,
            watch=self.seen.append,
            spent=spent,
        )


def test_all_rounds_are_taken_once_and_saved_on_the_way_and_at_the_end() -> None:
    rounds = Rounds()
    assert rounds.run(5) == "after all rounds"
    assert rounds.asked == [1, 2, 3, 4, 5]
    assert rounds.saved == [2, 4, 5]


def test_a_resumed_run_takes_the_rounds_that_are_left_and_none_where_none_are() -> None:
    rounds = Rounds(3)
    assert rounds.run(5) == "after all rounds"
    assert rounds.asked == [4, 5]
    finished = Rounds(5)
    assert finished.run(5) == "after all rounds"
    assert finished.asked == []


@pytest.mark.parametrize("fails", [1, 3])
def test_a_spent_budget_ends_the_run_with_what_it_has(fails: int) -> None:
    rounds = Rounds(fails=fails)
    assert rounds.run(5, every=100) == f"ended after {fails - 1} of 5 rounds: no more"
    assert rounds.saved == [fails - 1]


def test_an_interrupted_run_is_saved_before_it_stops() -> None:
    rounds = Rounds(fails=3, by=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        rounds.run(5, every=100)
    assert rounds.saved == [2]


def test_any_other_failure_is_raised_and_nothing_is_saved_over_what_was() -> None:
    rounds = Rounds(fails=3, by=ValueError)
    with pytest.raises(ValueError, match="no more"):
        rounds.run(5)
    assert rounds.saved == [2]


def test_who_watches_sees_every_round_and_what_was_spent_by_then() -> None:
    rounds = Rounds()
    rounds.run(3)
    assert [(one.done, one.rounds) for one in rounds.seen] == [(1, 3), (2, 3), (3, 3)]
    assert rounds.seen[-1].epsilon() == {"clinic": 3.0}
