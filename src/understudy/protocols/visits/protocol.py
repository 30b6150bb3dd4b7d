"""Visits: holders of people and their events release tables of both, once, privately, and chains are fitted to them.

What Gram is for people with one row, this is for people with many: visits, purchases, readings. Counted are one- and
two-way tables of people's columns, the number of events among them; of the columns of events, and of people's and
events' columns together; and of consecutive events. In each a person with all events weighs 1
(`data/visits/counts.py`), so that what a person did often counts no more than what another did once, and noise does not
grow with `most_events`. Everything after the one release is free (`models/visits`).

Sources: noise by Canonne, Kamath, Steinke 2020, priced as in `privacy/secure/moments.py`; sums by Bonawitz et al. 2017
(`privacy/secure/sums.py`). What is released is our own.

Holders have people of their own under one schema (over rows); or one holder or more have events of the same people, and
others tables of them (over columns), and tables across holders are products of their people's vectors, by Beaver 1991
(`privacy/secure/sums.py`); or both (a grid): holders of the same columns have people of their own, each of whom is
with one holder of all other columns, too, and what they count is added up.

Guarantee: over rows (ε, δ)-DP for a person with all rows in both tables at a holder (or at up to `most_holders` of
them), against the server, an outsider, and up to `colluding` other holders, who may pool what they know with the
server. Over columns for a person with all rows at all parties, in one price, against the server, any party, and an
outsider; the server deals the masks, so it must not pool what it knows with a holder. Over a grid the same against up
to `colluding` of the holders.
Edges: levels and bounds are those of the schema; how many events count (`most_events`) is public.
"""

from understudy.protocols.joint import run
from understudy.protocols.visits.study import Config as Config
from understudy.protocols.visits.study import VisitStudy

PROTOCOL = run.family(
    VisitStudy,
    paper=__doc__,
    same_people=None,  # rows of different people, columns of the same ones, or both
    kinds=("visits", "table"),
    audit="joint-alone",
)
train, forecast = PROTOCOL.train, PROTOCOL.forecast
