"""A message's name on the wire: written out, unique, explained, and the same
tomorrow.
"""

import pytest

from understudy.ground.errors import MessageError
from understudy.protocols.core.base import Ask
from understudy.runs.registry import PROTOCOLS

# Journals, transcripts and parties of another version know these. Add to the list;
# change none of it.
KINDS = {
    "aggregators.begin",
    "aggregators.check",
    "aggregators.checked",
    "aggregators.open",
    "aggregators.opened",
    "aggregators.release",
    "aggregators.released",
    "aggregators.take",
    "aggregators.taken",
    "aggregators.upload",
    "alignment.aligned",
    "alignment.found",
    "alignment.introduce",
    "alignment.introduced",
    "alignment.mask-other",
    "alignment.mask-own",
    "alignment.masked-ids",
    "class-means.begin",
    "class-means.round",
    "gan.begin",
    "gan.begun",
    "gan.gradient",
    "gen-fl.made",
    "gen-fl.make",
    "joint.agree",
    "joint.agreed",
    "joint.begin",
    "joint.begun",
    "joint.propose",
    "joint.proposed",
    "joint.release",
    "joint.released",
    "joint.swap",
    "joint.swapped",
    "lopub.begin",
    "lopub.round",
    "one-report.begin",
    "one-report.round",
    "people.begin",
    "people.begun",
    "people.moved",
    "people.reported",
    "people.round",
    "run.done",
    "run.keep",
    "run.return",
    "run.settle",
    "run.settled",
    "sgde.pull",
    "sgde.pulled",
    "sgde.push",
    "sgde.pushed",
    "sgde.subscribe",
    "sgde.subscribed",
    "union.introduce",
    "union.introduced",
    "union.mask",
    "union.mask-peer",
    "union.masked-people",
    "union.placed",
    "union.take-places",
    "union.tell-others",
    "vd-gan.round",
    "verti-gan.begin",
    "verti-gan.couple",
    "verti-gan.round",
}

MESSAGES = {message for module in PROTOCOLS.values() for message in module.messages}


def test_every_kind_is_the_one_that_others_know() -> None:
    assert {message.kind() for message in MESSAGES} == KINDS


def test_no_two_messages_share_a_kind() -> None:
    assert len({message.kind() for message in MESSAGES}) == len(MESSAGES)


def test_every_message_says_in_one_sentence_what_it_is() -> None:
    for message in MESSAGES:
        # a dataclass without a docstring gets its signature for one
        own = message.__dict__["__doc__"]
        assert not own.startswith(f"{message.__name__}("), message
        assert message.meaning()[0].isupper(), message
        assert message.meaning().endswith((".", "?")), message


def test_a_message_without_a_kind_of_its_own_cannot_be_sent() -> None:
    class Unnamed(Ask):
        pass

    class Heir(next(iter(MESSAGES))):  # type: ignore[misc]
        pass

    for message in (Unnamed, Heir):
        with pytest.raises(MessageError, match="has no kind"):
            message.kind()
