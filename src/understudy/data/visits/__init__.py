"""People with many rows: a table of people and a table of their events (visits, purchases, readings).

`schema` says what is public of both; `reading` opens them and brings each person's events together; `counts` is what
is counted of them, and by how much one person moves it; `several` is for events at several holders of
the same people.
"""

from understudy.data.visits.codes import VisitCodes
from understudy.data.visits.counts import VisitLayout, count_visits
from understudy.data.visits.reading import TwoSources, Visits, read_visits
from understudy.data.visits.schema import VisitSchema
from understudy.data.visits.several import SeveralLayout, SeveralVisits

__all__ = [
    "SeveralLayout",
    "SeveralVisits",
    "TwoSources",
    "VisitCodes",
    "VisitLayout",
    "VisitSchema",
    "Visits",
    "count_visits",
    "read_visits",
]
