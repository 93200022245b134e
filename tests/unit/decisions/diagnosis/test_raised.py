"""The second tier: exceptions that no rule names, by type, words and frames."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.exception_table import FRAMES, MESSAGES, TYPES
from flows.decisions.diagnosis.exceptions import MOST, Raised, judge, second_tier
from flows.decisions.diagnosis.matching import match_line, rule_by_name
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

F = FaultClass
WORKER = (
    "torch/utils/data/_utils/worker.py:_worker_loop",
    "torch/utils/data/_utils/fetch.py:fetch",
    "ds.py:__getitem__",
)
LOAD = ("train.py:main", "utils/ckpt.py:load_checkpoint", "torch/serialization.py:load", "torch/serialization.py:_load")
STATE = ("trainer.py:load_checkpoint", "torch/nn/modules/module.py:load_state_dict")
MAIN = ("train.py:<module>", "train.py:main")


def split(said: str) -> tuple[str, str]:
    name, _, message = said.partition(": ")
    return name, message


@rows("diagnosis/raised")
def test_an_exception_is_known_by_type_words_and_frames(
    wanted: FaultClass, text: str, frames: tuple[str, ...] = ()
) -> None:
    assert judge(*split(text), frames).fault_class is wanted


def test_the_same_words_elsewhere_are_another_fault() -> None:
    broken = ("ValueError", "could not read: file is truncated")
    assert judge(*broken, LOAD).fault_class is F.CHECKPOINT_CORRUPT
    assert judge(*broken, WORKER).fault_class is F.DATA
    missing = ("FileNotFoundError", "[Errno 2] No such file or directory: '/d/x'")
    assert judge(*missing, MAIN).fault_class is F.CONFIG
    assert judge(*missing, WORKER).fault_class is F.DATA


def test_after_steps_were_made_settings_are_less_likely_and_data_is_more() -> None:
    said = ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/shard-3.bin'", MAIN)
    before, after = judge(*said, trained=False), judge(*said, trained=True)
    assert before.fault_class is F.CONFIG
    assert after.weight < before.weight


def test_an_exception_of_which_nothing_is_known_is_the_users_with_the_weight_of_its_rule() -> None:
    rule = rule_by_name("python-exception")
    assert rule is not None
    assert judge("acme.Odd", "").weight == rule.weight
    assert not judge("acme.Odd", "").sure


def told(text: str, raised: Raised | None = None) -> tuple[str, FaultClass, float]:
    found = second_tier(match_line(text), text, raised, trained=False).matches
    assert len(found) == 1
    return found[0].rule.name, found[0].rule.fault_class, found[0].rule.weight


def raised(text: str, *frames: str) -> Raised:
    return Raised(*split(text), frames, LogLine(text, "rank"))


def test_a_rule_that_names_the_line_is_not_overruled() -> None:
    text = "OSError: [Errno 28] No space left on device: '/ckpt'"
    assert told(text, raised(text, *LOAD)) == ("disk-full", F.STORAGE, 0.93)


def test_the_judgement_stands_for_a_rule_of_its_class() -> None:
    text = "KeyError: 'optimizer'"
    assert told(text)[:2] == ("python-exception", F.USER_CODE)
    assert told(text, raised(text, *STATE))[:2] == ("exception-checkpoint-mismatch", F.CHECKPOINT_MISMATCH)


def test_an_exception_without_an_exceptions_name_counts_where_a_traceback_ends_with_it() -> None:
    text = "acme.train.Surprise: step 7"
    assert second_tier(match_line(text), text, None, trained=False).matches == ()
    assert told(text, raised(text))[1] is F.USER_CODE


def test_a_logged_exception_says_less_than_one_that_ended_the_program() -> None:
    logged = "2025-03-01 10:00:00,123 - trainer - ERROR - step 7 failed: KeyError: 'labels'"
    assert told(logged)[2] < told("KeyError: 'labels'")[2]
    retried = "2025-03-01 10:00:00,123 - trainer - ERROR - KeyError: 'labels', retrying"
    assert second_tier(match_line(retried), retried, None, trained=False).matches == ()


def test_a_wrapper_says_less_than_what_it_wraps() -> None:
    wrapped, inner = "TypeError: Caught TypeError in DataLoader worker process 0.", "TypeError: unhashable type: 'list'"
    assert told(wrapped)[2] < told(inner)[2]


def test_an_error_of_a_lost_connection_stays_an_echo_unless_its_frames_name_the_store() -> None:
    text = "ConnectionError: Connection closed"
    assert told(text, raised(text, *MAIN))[0] == "connection-error"
    assert told(text, raised(text, "s3fs/core.py:_call_s3", "s3fs/core.py:_put_file"))[1] is F.STORAGE


def test_hints_compile_and_speak_for_something() -> None:
    for hint in (*TYPES, *MESSAGES, *FRAMES):
        assert hint.regexes
        assert hint.points


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.text(max_size=300), st.lists(st.text(max_size=60), max_size=6), st.booleans())
def test_any_exception_is_judged_with_a_probability(name: str, message: str, frames: list[str], trained: bool) -> None:
    assert 0.0 < judge(name, message, tuple(frames), trained).weight <= MOST
