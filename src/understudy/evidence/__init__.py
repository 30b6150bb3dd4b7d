"""What a data protection officer files of a run: registry entry, catalogue records,
checklists, signed statements.
"""

from understudy.ground.extras import need_extra


def need_libraries() -> None:
    """ConfigError where what it is written with is not installed."""
    need_extra("evidence")
