"""The words of `primus drill`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.drill import KINDS, FaultSpec, parse_fault
from profiles.errors import ProfileError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("kill-rank:1,step=40", FaultSpec("kill-rank", rank=1, step=40)),
        ("lose-node:node-1", FaultSpec("lose-node", node="node-1")),
        ("lose-node:node-1,silent,step=3", FaultSpec("lose-node", node="node-1", silent=True, step=3)),
        ("slow-rank:0,factor=3", FaultSpec("slow-rank", rank=0, factor=3.0)),
        ("preempt-node:node-0,notice=5", FaultSpec("preempt-node", node="node-0", notice_seconds=5.0)),
        ("corrupt-checkpoint:newest", FaultSpec("corrupt-checkpoint")),
        ("api-away:seconds=5", FaultSpec("api-away", seconds=5.0)),
        ("ledger-away,seconds=2", FaultSpec("ledger-away", seconds=2.0)),
        ("kill-flow", FaultSpec("kill-flow")),
    ],
)
def test_every_form_of_the_promise_is_understood(text: str, spec: FaultSpec) -> None:
    assert parse_fault(text) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kil-rank:1", "did you mean kill-rank"),
        ("kill-rank:one", "number of a rank"),
        ("kill-rank", "needs a rank"),
        ("lose-node", "needs a node"),
        ("stop-rank:1", "needs seconds"),
        ("kill-flow:now", "takes nothing"),
        ("kill-rank:1,silent", "does not know 'silent'"),
        ("kill-rank:1,step=soon", "step must be a number"),
        ("kill-rank:1,step=-1", "must not be negative"),
        ("", "is unknown"),
    ],
)
def test_a_wrong_fault_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        parse_fault(text)


@given(
    st.text(max_size=40)
    | st.builds(lambda kind, rest: kind + rest, st.sampled_from(sorted(KINDS)), st.text(max_size=20))
)
def test_anything_is_a_fault_or_refused(text: str) -> None:
    try:
        kind = parse_fault(text).kind
    except ProfileError as error:
        kind = "kill-rank" if error.field == "--fault" else "an error that names no flag"
    assert kind in KINDS
