"""Moments: holders of images or series release means and second moments, privately, and Gaussians are fitted to them.

What Gram is for tables, this is for what has no columns. Rows become vectors of whole numbers by a public transform
(`data.encoding.frame`); three small sets of sums over people are released, each about what the one before it gave
(`stages`); everything after is free (`models/moments/fit.py`). Labels beside the rows are optional: one, or several,
which are drawn with the row (`models/moments/labels.py`).

Sources: private moments in a basis that no row chose are the idea of DP-MERF (Harder, Adamczewski, Park, AISTATS 2021);
noise by Canonne, Kamath, Steinke 2020; sums by Bonawitz et al. 2017 (`privacy/secure/sums.py`); noise on second moments
as in Dwork et al., "Analyze Gauss" (STOC 2014).

Guarantee: (ε, δ)-DP for a person with all rows at a holder (or at up to `most_holders` of them), against the server, an
outsider, and up to `colluding` other holders, who may pool what they know with the server.
Edges: a person counts once, by the average of the person's rows. docs/secure_products.md says who sees what.
"""

from understudy.protocols.joint import run
from understudy.protocols.moments.settings import Config as Config
from understudy.protocols.moments.study import Moments

PROTOCOL = run.family(
    Moments, aligned=False, paper=__doc__, same_people=False, kinds=("image", "series"), audit="joint"
)
train, forecast = PROTOCOL.train, PROTOCOL.forecast
