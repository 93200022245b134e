"""Tracebacks as logs have them: whole, cut, chained, wrapped, mixed with others' lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.exceptions import KEPT_FRAMES, Raised, named_exception, tracebacks
from flows.decisions.diagnosis.lines import clean
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

F = FaultClass
HEAD = "Traceback (most recent call last):"
FRAME = '  File "/opt/conda/lib/python3.10/site-packages/torch/serialization.py", line 815, in load'


def read(*texts: str) -> tuple[Raised, ...]:
    return tracebacks(
        [clean(LogLine(text, "rank", None, "", None, "x.log", number)) for number, text in enumerate(texts)]
    )


def said(*texts: str) -> list[tuple[str, str]]:
    return [(item.type, item.message) for item in read(*texts)]


def test_a_whole_one() -> None:
    (found,) = read(
        HEAD, '  File "train.py", line 7, in main', "    load(path)", FRAME, "    raise", "EOFError: Ran out of input"
    )
    assert (found.type, found.message, found.consequence) == ("EOFError", "Ran out of input", False)
    assert found.frames == ("train.py:main", "torch/serialization.py:load")
    assert found.line.line == 5


def test_what_stands_between_frames_ends_nothing() -> None:
    (found,) = read(HEAD, FRAME, "State: Active  Rate: 400", '  File "train.py", line 7, in main', "EOFError: gone")
    assert (found.type, found.message) == ("EOFError", "gone")
    assert found.frames == ("torch/serialization.py:load", "train.py:main")
    assert said(HEAD, FRAME, "Sorrow: of a library that names its exceptions so", "epoch 1") == [
        ("Sorrow", "of a library that names its exceptions so")
    ]


def test_without_its_first_line() -> None:
    assert said(FRAME, "EOFError: Ran out of input") == [("EOFError", "Ran out of input")]


def test_without_its_first_line_only_what_is_named_like_an_exception_ends_it() -> None:
    assert said(FRAME, "Epoch: 5", "ValueError: x") == [("ValueError", "x")]
    assert said(HEAD, FRAME, "acme.train.Surprise: step 7") == [("acme.train.Surprise", "step 7")]


def test_without_indentation() -> None:
    flat = (
        'File "/w/torch/serialization.py", line 441, in save',
        "_save(obj, zipfile)",
        "RuntimeError: file write failed",
    )
    assert said(HEAD, *flat) == [("RuntimeError", "file write failed")]


def test_without_names_of_functions() -> None:
    (found,) = read(HEAD, 'File "train.py", line 221, in', "RuntimeError: x")
    assert found.frames == ("train.py:",)


def test_with_a_time_before_every_line() -> None:
    dated = [f"2024-03-01 10:00:00,123 {text}" for text in (HEAD, FRAME, "tarfile.ReadError: unexpected end of data")]
    assert said(*dated) == [("tarfile.ReadError", "unexpected end of data")]


def test_of_a_worker_of_ray() -> None:
    assert said(*(f"(Actor pid=12, ip=10.0.0.3) {text}" for text in (HEAD, FRAME, "ValueError: x"))) == [
        ("ValueError", "x")
    ]


def test_in_a_box() -> None:
    box = (
        "╭──────────── Traceback (most recent call last) ────────────╮",
        "│ /opt/lib/python3.9/site-packages/torch/hub.py:1207 in load │",
        "│ ❱ 1207 │   │   return f()                                   │",
        "╰────────────────────────────────────────────────────────────╯",
        "OSError: no file named x",
    )
    (found,) = read(*box)
    assert (found.type, found.frames) == ("OSError", ("torch/hub.py:load",))


def test_in_one_json_text() -> None:
    text = f'"py_callstack": "{HEAD}\\n  File \\"/w/train.py\\", line 5, in main\\nRuntimeError: Permission denied\\n",'
    (found,) = read(text)
    assert (found.type, found.message, found.frames) == ("RuntimeError", "Permission denied", ("/w/train.py:main",))


def test_lines_of_others_in_between() -> None:
    strangers = ("[2023-03-21 20:28:05] [INFO] [engine.py:21:load] loading", "iteration 7 done")
    (found,) = read(HEAD, '  File "train.py", line 7, in main', *strangers, FRAME, "    raise", "ValueError: x")
    assert found.frames[-1] == "torch/serialization.py:load"


def test_a_message_over_several_lines() -> None:
    lines = ("RuntimeError: Error(s) in loading state_dict for GPT:", "\tsize mismatch for wte.weight: copying a param")
    assert said(HEAD, FRAME, *lines) == [("RuntimeError", " ".join(text.strip() for text in lines)[14:])]
    assert said(HEAD, FRAME, "AssertionError", "sizes differ", "more") == [("AssertionError", "sizes differ")]


def test_of_chained_ones_the_first_is_the_cause() -> None:
    first, second = read(
        HEAD, FRAME, "KeyError: 'x'", "", "During handling of the above exception, another exception occurred:", "",
        HEAD, FRAME, "ValueError: unknown x",
    )  # fmt: skip
    assert (first.consequence, second.consequence, second.cause) == (False, True, first)


def test_a_worker_s_exception_is_the_cause_of_the_one_that_wraps_it() -> None:
    outer, inner = read(
        HEAD, FRAME, "OSError: Caught OSError in DataLoader worker process 3.",
        "Original Traceback (most recent call last):",
        '  File "/w/ds.py", line 9, in __getitem__', "OSError: image file is truncated",
    )  # fmt: skip
    assert (outer.consequence, outer.cause, inner.consequence) == (True, inner, False)
    assert inner.frames == ("/w/ds.py:__getitem__",)


def test_what_python_survives_ends_nothing() -> None:
    assert (
        said("--- Logging error ---", HEAD, FRAME, "UnicodeEncodeError: x", "Call stack:", FRAME, "Message: 'a'") == []
    )
    assert said("Exception ignored in: <function f>", HEAD, FRAME, "AttributeError: x") == []


def test_stacks_that_are_no_tracebacks_end_nothing() -> None:
    assert said("Current thread 0x1 (most recent call first):", '  File "x.py", line 3 in f', "ValueError: later") == []


def test_only_the_innermost_frames_are_kept() -> None:
    (found,) = read(HEAD, *(f'  File "a.py", line 1, in f{number}' for number in range(40)), "ValueError: x")
    assert len(found.frames) == KEPT_FRAMES
    assert found.frames[-1] == "a.py:f39"


def test_an_exception_named_within_a_line() -> None:
    assert named_exception("ERROR:root:step failed: acme.FooError: bad") == ("acme.FooError", "bad")
    assert named_exception("Error reported: <class 'tf.errors.DataLossError'>, truncated record") == (
        "tf.errors.DataLossError",
        "truncated record",
    )
    assert named_exception("all is well") == ("", "")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([HEAD, FRAME, "ValueError: x", "", "    y", "│ a.py:1 in f", "Original " + HEAD]) | st.text()
    )
)
def test_any_lines_are_read(texts: list[str]) -> None:
    found = read(*texts)
    assert all(item.type for item in found[:-1])
    assert all(item.type or item.frames for item in found[-1:])


TORN = """\
Traceback (most recent call last): (RANK 6)
  File 
"/usr/lib/python3/dist-packages/torch/distributed/checkpoint/state_dict_loader.p
y", line 198, in local_step
    local_plan = planner.create_local_plan()
  File 
"/usr/lib/python3/dist-packages/torch/distributed/checkpoint/default_planner.py"
, line 235, in create_default_local_load_plan
    md = metadata.state_dict_metadata[fqn]
         ~~~~~~~~~~~~~~~~~~~~~~~~~~~~^^^^^
KeyError: 
'state.model.weight.exp_avg'"""


def test_frames_that_were_broken_at_the_width_of_a_terminal_are_read() -> None:
    (found,) = tracebacks([LogLine(text, "file", line=number) for number, text in enumerate(TORN.split("\n"), 1)])
    assert found.frames == (
        "torch/distributed/checkpoint/state_dict_loader.py:local_step",
        "torch/distributed/checkpoint/default_planner.py:create_default_local_load_plan",
    )
    assert found.message == "'state.model.weight.exp_avg'"
    assert found.code == "local_plan = planner.create_local_plan()\nmd = metadata.state_dict_metadata[fqn]"


BOXED = """\
╭───────────────────── Traceback (most recent call last) ─────────────────────╮
│ /opt/conda/lib/python3.7/site-packages/deepspeed/runtime/config.py:         │
│ 891 in _batch_assertion                                                     │
│                                                                             │
│    890 │   │   assert train_batch == micro_batch * grad_acc * self.world     │
│ ❱  891 │   │   │   f"Check batch related parameters. train_batch_size"       │
╰─────────────────────────────────────────────────────────────────────────────╯
AssertionError: Check batch related parameters. train_batch_size is not
equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 *
8 * 1
ERROR:torch.distributed.elastic.multiprocessing.api:failed"""


def test_a_boxed_traceback_ends_with_a_message_over_several_lines() -> None:
    (found,) = tracebacks([LogLine(text, "file", line=number) for number, text in enumerate(BOXED.split("\n"), 1)])
    assert found.frames == ("deepspeed/runtime/config.py:_batch_assertion",)
    assert found.message.endswith("train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
                                  "world_size 64 != 4 * 8 * 1")  # fmt: skip


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ('raise ReadError("unexpected end of data")', [("ReadError", "unexpected end of data")]),
        ("raise failure", [("", "")]),
        ("return f.read()", [("", "")]),
    ],
)
def test_a_log_that_ends_within_a_traceback_ends_with_what_it_raises(code: str, raised: list[tuple[str, str]]) -> None:
    texts = ("Traceback (most recent call last):", '  File "/usr/lib/tarfile.py", line 687, in read', f"    {code}")
    found = tracebacks([LogLine(text, "file", line=number) for number, text in enumerate(texts, 1)])
    assert [(one.type, one.message) for one in found] == raised


CUT_OFF = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/train.py", line 12, in <module>
[rank0]:     train()
[rank0]:   File "/w/train.py", line 40, in train
[rank0]:     loss = model(batch)"""
PLANNING = """
[rank0]:   File "/usr/lib/torch/distributed/checkpoint/default_planner.py", line 9, in create_local_plan
[rank0]:     return create_default_local_load_plan("""


def test_a_traceback_that_is_cut_off_is_a_failure_of_which_frames_may_tell() -> None:
    untold = diagnose(evidence_of([("train.log", CUT_OFF.split("\n"))]))
    assert (untold.fault_class, untold.retry_helps) == (F.UNKNOWN, False)
    loading = diagnose(evidence_of([("train.log", (CUT_OFF + PLANNING).split("\n"))]))
    assert (loading.fault_class, loading.rule) == (F.CHECKPOINT_MISMATCH, "exception-checkpoint-mismatch")
    dumped = ["--- Logging error ---", *CUT_OFF.split("\n")]
    assert diagnose(evidence_of([("train.log", dumped)])).fault_class is not F.CHECKPOINT_MISMATCH
    going_on = [*CUT_OFF.split("\n"), *(f"step {step} loss {2 - step / 100}" for step in range(1, 40))]
    assert diagnose(evidence_of([("train.log", going_on)])).fault_class is F.NONE
