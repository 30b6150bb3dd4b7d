"""People with many events, in two tables; and, of a generator alone, with events of several kinds."""

from typing import Any, ClassVar

import numpy as np

from understudy.data.arrays import starts_of
from understudy.data.kinds.kind import Family, Kind, placed
from understudy.data.table import Table, Violation
from understudy.data.visits import SeveralVisits, Visits, VisitSchema, read_visits

_MORE = 5  # events of the person who is made up to have more than count


class VisitKind(Kind[VisitSchema, Visits]):
    name: ClassVar[str] = VisitSchema.kind
    plural: ClassVar[str] = "people with events"

    def read(
        self, source: Any, schema: VisitSchema, name: str | None = None, *, one_row_each: bool = True
    ) -> Visits:
        return read_visits(source, schema, name)

    def check(self, source: Any, schema: VisitSchema) -> tuple[list[Violation], list[str]]:
        """How many people there are, and whose events are cut."""
        rows, most = self.read(source, schema), schema.most_events
        said = [f"{rows.rows:,} people, {int((rows.numbers == 0).sum()):,} of them without events."]
        if more := int((rows.numbers > most).sum()):
            kept = f"the first {most:,}" if schema.cut == "first" else f"{most:,}, drawn by chance,"
            said.append(f"{more:,} have more than {most:,} events, of which {kept} count.")
        return [], said

    def roster(self, rows: Visits, *, several: bool = False) -> Table:
        return placed(rows.people, rows.schema.person, rows.source)

    def sizes(self, schema: VisitSchema) -> tuple[int, ...]:
        """The levels of both, the bounds of each level of the number of events, and whether they have an order."""
        from understudy.data.visits.frames import number_bounds  # which loads torch

        bounds = (bound for pair in number_bounds(schema) for bound in pair)
        columns = (*schema.person_schema.columns, *schema.event_schema.columns)
        return (*(column.size for column in columns), *bounds, schema.ordered)

    def made_up(self, schema: VisitSchema, people: int, canary: int | None = 0) -> Visits:
        own, events = (
            np.array([[column.size - 1 for column in columns]], dtype=np.int32)
            for columns in (
                () if schema.people is None else schema.people.columns,
                [column for column in schema.events.columns if column.name != schema.time],
            )
        )
        here = np.arange(people) == (-1 if canary is None else canary)
        numbers = np.where(here, schema.most_events + _MORE, 1)
        clock = schema.clock
        return Visits(
            own=np.where(here[:, None], own, 0).astype(np.int32),
            events=np.where(np.repeat(here, numbers)[:, None], events, 0).astype(np.int32),
            times=None if clock is None else np.full(numbers.sum(), int(clock.edges[0]), dtype=np.int64),
            starts=starts_of(numbers),
            people=np.arange(people),
            schema=schema,
            source="made-up rows",
        )


VISITS = VisitKind(VisitSchema, Visits)
EVENTS: Family[VisitSchema | SeveralVisits, Visits] = Family(VisitSchema | SeveralVisits, Visits)
