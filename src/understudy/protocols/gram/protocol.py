"""Gram: holders measure all two-way tables of their joint data once, privately, and a generator is fitted to them.

One-hot rows x ∈ {0,1}ᴰ of m columns. The Gram matrix G = Σ x xᵀ holds every one-way table (on its diagonal) and every
two-way table, across holders too. Over rows it adds up; over columns its blocks are products X_iᵀX_k; where both are
split (`data.grid`) its blocks are sums of products. It is released once, under whole-number noise, and everything
after that is free: `models/tables/fit_gram.py` fits a mixture to it.

Sources: the measurements of McKenna, Miklau, Sheldon, "Winning the NIST contest" (JPC 2021), all pairs at once;
products by Beaver 1991 (`privacy/secure/sums.py`), sums by Bonawitz et al. 2017 (`privacy/secure/sums.py`), noise by
Canonne, Kamath, Steinke 2020. The protocol that joins them is our own.

Guarantee: (ε, δ)-DP for a person with all their columns at all parties, in one price, against the server, against any
party, and against an outsider. Each party's ledger is charged that whole price; a person pays it once.
Edges: the server deals the masks of products, so where columns are split it must not pool what it knows with a holder;
over rows it may, with up to `colluding` of them. docs/secure_products.md says who sees what.
"""

from functools import partial

from understudy.protocols.gram.settings import Config as Config
from understudy.protocols.gram.study import Gram
from understudy.protocols.joint import run

PROTOCOL = run.family(Gram, paper=__doc__, same_people=None, audit="gram")
train, forecast = PROTOCOL.train, partial(run.forecast, Gram)
