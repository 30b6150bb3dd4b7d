"""People with many rows: a table of people and a table of their events (visits,
purchases, readings).

`schema` says what is public of both; `reading` opens them and brings each person's
events together; `counts` is what is counted of them, and by how much one person moves
it.
"""

from understudy.data.visits.counts import SeveralLayout as SeveralLayout
from understudy.data.visits.counts import VisitCodes as VisitCodes
from understudy.data.visits.counts import VisitLayout as VisitLayout
from understudy.data.visits.counts import count_visits as count_visits
from understudy.data.visits.reading import TwoSources as TwoSources
from understudy.data.visits.reading import Visits as Visits
from understudy.data.visits.reading import read_visits as read_visits
from understudy.data.visits.schema import SeveralVisits as SeveralVisits
from understudy.data.visits.schema import VisitSchema as VisitSchema
