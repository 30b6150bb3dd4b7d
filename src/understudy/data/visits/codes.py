"""People and their events as levels: what is counted, and what a generator of visits draws."""

from dataclasses import dataclass, field

import numpy as np

from understudy.data.encoding.values import Codes
from understudy.data.ragged import Places, taken
from understudy.ground.errors import SchemaError


@dataclass(frozen=True, eq=False)
class VisitCodes:
    """Person after person, and each one's events in their order. Its repr shows no rows.

    `people` are the levels of `VisitSchema.person_schema`, whose last column is the number of events; `events` those of
    `VisitSchema.event_schema`. Person i has the events starts[i] … starts[i + 1].
    Edges: places that do not rise from 0 to the number of events → SchemaError.
    """

    people: Codes = field(repr=False)  # (people, person columns)
    events: Codes = field(repr=False)  # (events, event columns)
    starts: Places = field(repr=False)  # (people + 1,)

    def __post_init__(self) -> None:
        starts = self.starts
        if self.people.ndim != 2 or self.events.ndim != 2 or starts.shape != (len(self.people) + 1,):
            raise SchemaError("people, events and their places do not fit together. Nothing was counted.")
        if starts[0] != 0 or starts[-1] != len(self.events) or (np.diff(starts) < 0).any():
            raise SchemaError("an event is nobody's, or two people's. Nothing was counted.")

    def take(self, people: Places) -> "VisitCodes":
        """These people, with all their events, in this order."""
        starts, at = taken(self.starts, people)
        return VisitCodes(self.people[people], self.events[at], starts)

    @property
    def numbers(self) -> Places:
        """How many events each person has: (people,)."""
        return np.diff(self.starts)

    @property
    def owner(self) -> Places:
        """Whose each event is, as a place among the people: (events,)."""
        return np.repeat(np.arange(len(self.people)), self.numbers)

    @property
    def order(self) -> Places:
        """Which of its person's events each is, from 0: (events,)."""
        return np.arange(len(self.events)) - np.repeat(self.starts[:-1], self.numbers)
