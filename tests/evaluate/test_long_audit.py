"""The long audit's own parts, in seconds: what it plants is there while it looks, and
gone afterwards.
"""

import numpy as np
import pytest
from long_audit import (
    MASKED,
    PLANTED,
    RUNS,
    TIGHT,
    Job,
    claim_is_kept,
    jobs,
    masks_are_used_once,
    planted,
)


@pytest.mark.parametrize("run", MASKED)
def test_masks_that_are_used_again_are_seen_and_others_are_not(run: str) -> None:
    assert Job(run, None, masks_are_used_once, 5)()[0]
    assert Job(run, "masks used again", masks_are_used_once, 5)()[0]
    assert Job(run, None, masks_are_used_once, 5)()[0]


@pytest.mark.long
def test_what_keeps_its_claim_passes_and_a_bug_that_is_not_seen_is_reported() -> None:
    assert Job("gram", None, claim_is_kept, 5)(trials=20)[0]
    # so few show nothing
    assert not Job("gram", "two thirds of the noise", claim_is_kept, 5)(looks=(20,))[0]


def test_each_run_is_checked_as_it_is_and_with_bugs_by_seeds_of_its_own() -> None:
    asked = jobs(7)
    assert {
        job.run for job in asked if job.bug is None and job.check is claim_is_kept
    } == set(RUNS)
    assert {job.run for job in asked if job.bug} == {*RUNS, *TIGHT}
    assert {job.bug for job in asked} - {None} == set(PLANTED)
    assert len({job.seed for job in asked}) == len(asked)
    assert np.diff(sorted(job.seed for job in asked)).min() >= 3


def test_one_person_twice_counts_twice() -> None:
    case = RUNS["gram"].case()
    people = case.parties(True, 0)["a"].held.rows
    with planted(PLANTED["one person twice"][1]):
        assert case.parties(True, 0)["a"].held.rows == people + 1
    assert case.parties(True, 0)["a"].held.rows == people
