"""Training the networks of many clients as one batch: parameters with a leading client axis, and the classifiers
that are trained so.
"""

from understudy.models.cohort.classifier import (
    Classifier,
    Dense,
    LeNet,
    LogisticRegression,
    Mlp,
    Quadratic,
    UprightQuadratic,
    from_description,
)
from understudy.models.cohort.client_axis import linear, product, times_transposed
from understudy.models.cohort.flat import Flat, Shapes, Uniform, read
from understudy.models.cohort.replay import Replayed
from understudy.models.cohort.single import learned
from understudy.models.cohort.taps import Taps
from understudy.models.cohort.training import Batch, ClassifierTraining, check_training, descend, walk

__all__ = [
    "Batch",
    "Classifier",
    "ClassifierTraining",
    "Dense",
    "Flat",
    "LeNet",
    "LogisticRegression",
    "Mlp",
    "Quadratic",
    "Replayed",
    "Shapes",
    "Taps",
    "Uniform",
    "UprightQuadratic",
    "check_training",
    "descend",
    "from_description",
    "learned",
    "linear",
    "product",
    "read",
    "times_transposed",
    "walk",
]
