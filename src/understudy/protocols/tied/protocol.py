"""Tied: one party has images, another a table, a third series of the same people; all are measured together, once.

What a table says about images and series that others hold is in the second moments of the joint vector of a person: the
levels of the tables, and the frequencies of the rest in a public frame. Within a holder they are sums, across holders
products (`privacy/secure/sums.py`). They are released under whole-number noise at one price, and everything after is
free: a mixture is fitted to the tables, and Gaussians given its levels to the rest (`models/tied`).

A label among the tables' columns has its classes' own covariances, too: the triangle of w wᵀ is a vector that an
array's holder makes alone, so that its sums by class are a product of two holders, not of three.

Sources: products by Beaver 1991, noise by Canonne, Kamath, Steinke 2020, noise on second moments as in Dwork et al.,
"Analyze Gauss" (STOC 2014), the frame as `moments`.

Guarantee: (ε, δ)-DP for a person with the rows at all parties, in one price, against the server, against any party, and
against an outsider. Each party's ledger is charged that whole price; a person pays it once.
Edges: the server deals the masks of products, so it must not pool what it knows with a holder. docs/secure_products.md
says who sees what, docs/tied.md what is fitted.
"""

from understudy.protocols.joint import run
from understudy.protocols.tied.study import Config as Config
from understudy.protocols.tied.study import TiedStudy

PROTOCOL = run.family(
    TiedStudy, paper=__doc__, same_people=True, kinds=("table", "image", "series"), one_release=True, audit="joint"
)
train, forecast = PROTOCOL.train, PROTOCOL.forecast
