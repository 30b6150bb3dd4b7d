"""What several holders have of the same people, drawn together: a mixture for their tables, Gaussians given its levels
for their images and series, and how both are fitted to released moments.
"""

from understudy.models.tied.fit import Classwise, Joint, Tied, fit_tied
from understudy.models.tied.network import ArrayPart, Part, TiedGaussians

__all__ = ["ArrayPart", "Classwise", "Joint", "Part", "Tied", "TiedGaussians", "fit_tied"]
