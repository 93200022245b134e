"""Which commands can be forked, and the talk between a launcher and its parked process: values only."""

from __future__ import annotations

import json
import os
import socket
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.programs.prefork import protocol
from workflows.programs.prefork.child import Options
from workflows.programs.prefork.protocol import (
    ForkOrder,
    FrameError,
    ParkedProgram,
    Program,
    mismatch,
    parse_command,
    parse_order,
)

FORKABLE = [
    ("python3 train.py", ((), "train.py", False, ())),
    ("python train.py --steps 3 -c x", ((), "train.py", False, ("--steps", "3", "-c", "x"))),
    ("/opt/conda/bin/python3.10 -u /w/train.py", (("-u",), "/w/train.py", False, ())),
    ("python3 -m torchtitan.train --x", ((), "torchtitan.train", True, ("--x",))),
    ("python3 -mtrain", ((), "train", True, ())),
    ("python3 -um train -m y", (("-u",), "train", True, ("-m", "y"))),
    ("python3 -W error -X dev -OO t.py", (("-Werror", "-Xdev", "-OO"), "t.py", False, ())),
    ("python3 -uWerror t.py", (("-u", "-Werror"), "t.py", False, ())),
    ("python3 -I -S programs.pyz demo-train", (("-I", "-S"), "programs.pyz", False, ("demo-train",))),
]
PLAIN = [
    *("", "python3", "./train.sh x", "bash -c python3", "torchrun train.py", "env A=1 python3 t.py", "pypy3 t.py"),
    *("python2 t.py", "python2.7 t.py", "pythonw t.py", "python3-config t.py", "python3.11d t.py"),
    *("python3 -c pass", "python3 -uc pass", "python3 -", "python3 -i t.py", "python3 -V", "python3 --help"),
    *("python3 --check-hash-based-pycs always t.py", "python3 -Z t.py", "python3 -m", "python3 -W", "python3 -x t.py"),
    *("python3 -v t.py", "python3 t.pyc", "python3 -u"),
]


@pytest.mark.parametrize(("command", "expected"), FORKABLE, ids=[row[0] for row in FORKABLE])
def test_python_programs_can_be_forked(command: str, expected: tuple[Any, ...]) -> None:
    words = command.split()
    assert parse_command(words) == Program(words[0], *expected)


@pytest.mark.parametrize("command", PLAIN)
def test_everything_else_is_started_plainly(command: str) -> None:
    assert parse_command(command.split()) is None


def test_an_empty_word_is_no_script() -> None:
    assert parse_command(["python3", ""]) is None


def test_the_park_reads_its_command_line() -> None:
    options = Options(socket=7, parent=41, name="t.py", module=True, preload=("numpy,torch", "json"))
    assert options.modules() == ["numpy", "torch", "json"]
    words = options.argv()
    assert "--name=t.py" in words
    assert "--preload=numpy,torch" in words


TEXT = st.text(st.characters(exclude_characters="\0", codec=None), max_size=20)
NAMES = st.text(st.characters(exclude_characters="\0=", codec=None), min_size=1, max_size=9)
ORDERS = st.builds(
    ForkOrder,
    target=st.builds(ParkedProgram, TEXT, st.booleans(), TEXT),
    argv=st.lists(TEXT, max_size=4).map(tuple),
    arguments=st.lists(TEXT, max_size=4).map(tuple),
    environment=st.dictionaries(NAMES, TEXT, max_size=4),
    terminal=st.booleans(),
)


@given(ORDERS)
def test_an_order_travels_whole(order: ForkOrder) -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        protocol.send(mine, order.message())
        heard = protocol.receive(theirs)
    assert heard is not None
    assert parse_order(heard[0]) == order


@given(ORDERS, st.data())
def test_a_part_of_a_frame_is_never_an_order(order: ForkOrder, data: st.DataObject) -> None:
    body = json.dumps(order.message()).encode()
    whole = struct.pack("!I", len(body)) + body
    cut = data.draw(st.integers(1, len(whole) - 1))
    mine, theirs = socket.socketpair()
    with theirs:
        with mine:
            mine.sendall(whole[:cut])
        with pytest.raises(FrameError):
            protocol.receive(theirs)


@given(st.binary(max_size=64))
def test_garbage_is_never_an_order(garbage: bytes) -> None:
    mine, theirs = socket.socketpair()
    with theirs:
        with mine:
            mine.sendall(garbage)
        try:
            heard = protocol.receive(theirs)
        except FrameError:
            return
    if heard is not None:
        with pytest.raises(FrameError):
            parse_order(heard[0])
    else:
        assert garbage == b""


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists)


@given(ORDERS, st.data())
def test_one_wrong_field_spoils_an_order(order: ForkOrder, data: st.DataObject) -> None:
    message = order.message()
    field = data.draw(st.sampled_from(sorted(message)))
    wrong = data.draw(JSON.filter(lambda value: type(value) is not type(message[field])))
    with pytest.raises(FrameError, match=field):
        parse_order({**message, field: wrong})
    del message[field]
    with pytest.raises(FrameError, match=field):
        parse_order(message)


@pytest.mark.parametrize("name", ["", "a=b", "a\0b"])
def test_no_process_can_have_such_a_variable(name: str) -> None:
    message = ForkOrder(ParkedProgram("t.py", False, "/w"), (), (), {}, False).message()
    with pytest.raises(FrameError, match="environment"):
        parse_order({**message, "environment": {name: "x"}})


def test_descriptors_travel_and_more_than_asked_for_are_refused() -> None:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        read, write = os.pipe()
        protocol.send(mine, {"x": 1}, (read, write))
        heard = protocol.receive(theirs, 2)
        assert heard is not None
        message, descriptors = heard
        assert message == {"x": 1}
        assert not any(os.get_inheritable(fd) for fd in descriptors)
        os.write(descriptors[1], b"through")
        assert os.read(read, 9) == b"through"
        before = len(os.listdir("/proc/self/fd")) - len(descriptors)
        protocol.close(descriptors)
        protocol.send(mine, {}, [read] * 9)
        with pytest.raises(FrameError, match="too many"):
            protocol.receive(theirs, 2)
        assert len(os.listdir("/proc/self/fd")) == before
        protocol.close((read, write))


PARKED = ParkedProgram("t.py", False, "/w")
WITH = {"PATH": "/bin", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (ForkOrder(PARKED, (), ("--resume", "x"), {**WITH, "RANK": "3", "PRIMUS_INCARNATION": "2"}, False), ""),
        (ForkOrder(PARKED, (), (), {**WITH, "MASTER_PORT": "1", "LOCAL_RANK": "1"}, True), ""),
        (ForkOrder(PARKED, (), (), {**WITH, "OMP_NUM_THREADS": "8"}, False), "another OMP_NUM_THREADS"),
        (ForkOrder(PARKED, (), (), {"PATH": "/bin"}, False), "another OMP_NUM_THREADS"),
        (ForkOrder(PARKED, (), (), {**WITH, "LANG": "C"}, False), "another LANG"),
        (ForkOrder(replace(PARKED, name="u.py"), (), (), WITH, False), "not for u.py"),
        (ForkOrder(replace(PARKED, module=True), (), (), WITH, False), "parked for t.py"),
        (ForkOrder(replace(PARKED, working_directory="/v"), (), (), WITH, False), "in /w"),
    ],
)
def test_a_parked_process_serves_what_it_was_parked_for(order: ForkOrder, why: str) -> None:
    found = mismatch(PARKED, {**WITH, "PRIMUS_INCARNATION": "1"}, order)
    assert why in found
    assert bool(why) == bool(found)
