"""Questions to a generator: rows that meet a condition, what is missing of rows, tables. Post-processing, so free."""

from understudy.answers.answers import Answers
from understudy.answers.raking import Weights
from understudy.answers.release import Release

__all__ = ["Answers", "Release", "Weights"]
