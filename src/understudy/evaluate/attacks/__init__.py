"""What an attacker learns from a release about the people behind it. Every attack has a control and a baseline."""

from understudy.evaluate.attacks.attack import Attack, Measure
from understudy.evaluate.attacks.leakage import Leakage, attack_tables

__all__ = [
    "Attack",
    "Leakage",
    "Measure",
    "attack_tables",
]
