"""Rounds: asked until all are done, a budget is spent, or somebody interrupts, and saved on the way.

    ended = run_rounds(config.rounds, step, done=self.done, save=self.save, every=100, watch=watch, spent=prices)

A protocol says what a round is (`step`) and what is kept of it (`save`); nothing else differs between their loops. One
without rounds is watched in two steps (`two_steps`): what is released, and what is fitted to it.
"""

from collections.abc import Callable, Mapping

from understudy.ground.errors import BudgetExceeded
from understudy.protocols.core.base import Progress, Watcher

ALL = "after all rounds"


def run_rounds(
    total: int,
    step: Callable[[int], None],
    *,
    done: int,
    save: Callable[[], None],
    every: int,
    watch: Watcher | None,
    spent: Callable[[], Mapping[str, float]],
) -> str:
    """Take the rounds that are left; how it ended, in the words of a card.

    `step` asks and learns, and notes its round as done when it is: its numbers go from `done` + 1 to `total`. `save`
    is called `every` so many rounds, at the end, and when the run is interrupted, which is raised again. `spent` is
    what each party has paid so far, for those who watch.
    Edges: a budget that is spent ends the run with what it has, none at all if it was in the first round.
    """
    ended = ALL
    try:
        while done < total:
            step(done + 1)
            done += 1
            if watch is not None:
                watch(Progress(done, total, spent))
            if done % every == 0:
                save()
    except BudgetExceeded as refusal:
        ended = f"ended after {done} of {total} rounds: {refusal}"
    except KeyboardInterrupt:
        save()
        raise
    save()
    return ended


def two_steps(watch: Watcher | None, spent: Callable[[], Mapping[str, float]]) -> Callable[[int], None]:
    """What such a protocol calls with 1 when all is released, as often as it fits on, and with 2 at the end."""

    def look(done: int) -> None:
        if watch is not None:
            watch(Progress(done, 2, spent))

    return look
