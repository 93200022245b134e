"""The approve flow: a form on the Prefect server's pages that answers a question, as `primus approve` does.

An approval is a row of the ledger, so nothing waits in a flow run: the form may be filled in days after the question
was put, and the run's driver then reads the answer.
"""

from __future__ import annotations

from typing import Any, Literal

from prefect import State, flow
from prefect.states import Completed, Failed

from profiles.errors import Conflict, NotFound
from tasks.context import session
from tasks.prefect.automations import answer as give
from tasks.prefect.automations import present_caller
from workflows.model.records import one_line


@flow(name="approve", flow_run_name="{answer} {approval}", validate_parameters=True)
async def approve(approval: str, answer: Literal["approve", "deny"], why: str) -> State[Any]:
    """Answer a question that waits for a person. `primus approvals` lists them; each has a page under Artifacts.

    Args:
        approval: Id of the question, as its page and `primus approvals` show it.
        answer: approve: what was decided is carried out. deny: it is not.
        why: Why, in a few words; it stands beside the decision for ever.

    Returns:
        A state whose message says what was answered, or which field is wrong.
    """
    identity, reason = approval.strip(), one_line(why)
    if not reason:
        return Failed(message="why: say why in a few words; it stands beside the decision for ever")
    try:
        with session():
            answered = give(identity, approved=answer == "approve", why=reason, by=present_caller())
    except NotFound as error:
        return Failed(message=f"approval: {error}; `primus approvals` lists those that wait")
    except Conflict as error:
        return Failed(message=f"approval: {error}")
    return Completed(message=f"{answered.question} {answered.state} by {answered.answerer}: {answered.why}")
