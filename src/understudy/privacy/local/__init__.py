"""What one person sends by themselves under local privacy: choices of coordinates (`selection`), noisy values
(`mean`), bits (`rappor`), one set of cells (`subset_selection`), one of many codewords (`nearest_codes`).

A `Reporter` turns updates into reports and reports into a sum.
"""

from understudy.privacy.local.mean.duchi import Duchi
from understudy.privacy.local.mean.fedsel import FedSel
from understudy.privacy.local.mean.hybrid import Hybrid
from understudy.privacy.local.mean.piecewise import Piecewise
from understudy.privacy.local.mean.pm_sub import PmSub
from understudy.privacy.local.rappor import Rappor
from understudy.privacy.local.reporter import Report, Reporter, check_clip, check_epsilon, cohort
from understudy.privacy.local.selection.em_mds import EmMds, largest_size
from understudy.privacy.local.selection.mag_rr import MagRr, RateDecay
from understudy.privacy.local.selection.naive import Naive
from understudy.privacy.local.selection.proportional import Proportional
from understudy.privacy.local.selection.ps import Ps
from understudy.privacy.local.selection.sub_mds import SubMds

__all__ = [
    "Duchi",
    "EmMds",
    "FedSel",
    "Hybrid",
    "MagRr",
    "Naive",
    "Piecewise",
    "PmSub",
    "Proportional",
    "Ps",
    "Rappor",
    "RateDecay",
    "Report",
    "Reporter",
    "SubMds",
    "check_clip",
    "check_epsilon",
    "cohort",
    "largest_size",
]
