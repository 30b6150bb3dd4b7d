"""PM-SUB: the piecewise mechanism with the narrower window that suits a larger ε.

Zhao et al., "Local differential privacy based federated learning for internet of things" (IEEE IoT-J 2020):
t = e^(ε/3) where Wang et al. have e^(ε/2).
"""

from understudy.privacy.local.mean.piecewise import PiecewiseValue, SampledMean


class PmSub(SampledMean):
    """PM-SUB for vectors."""

    @property
    def each(self) -> PiecewiseValue:
        return PiecewiseValue(self.epsilon / self.count, window=1 / 3, inner=self.cells)
