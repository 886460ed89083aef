"""The gate: what opens it, what shuts it, what it holds, and the bound past which it lets a silent stream through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.frame import Frame, Kind
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.policy.gate import EMPTY, MAX_BYTES, UNREADABLE, Gate, Verdict

BOOM = Fault(FaultKind.SERVER_ERROR, Blame.PROVIDER, "boom", retry=True, counts=True)


def neutral(raw: bytes = b"data: {}\n\n") -> Frame:
    return Frame(raw, Kind.NEUTRAL)


def content(raw: bytes = b"data: hi\n\n") -> Frame:
    return Frame(raw, Kind.CONTENT, content=True)


def test_a_neutral_frame_is_held_and_decides_nothing() -> None:
    gate = Gate()
    assert gate.feed([neutral()]) is Verdict.HOLD
    assert gate.held == [b"data: {}\n\n"]
    assert gate.fault is None


def test_nothing_decides_nothing() -> None:
    assert Gate().feed([]) is Verdict.HOLD


@pytest.mark.parametrize(
    "frame",
    [
        content(),
        Frame(b"data: f\n\n", Kind.FINISH),
        Frame(b"data: cf\n\n", Kind.FINISH, content=True),
        Frame(b"data: n\n\n", Kind.NEUTRAL, content=True),
    ],
)
def test_content_or_a_finish_commits_and_releases_what_was_held_as_it_came(frame: Frame) -> None:
    gate = Gate()
    gate.feed([neutral(b"data: role\n\n")])
    assert gate.feed([frame]) is Verdict.COMMIT
    assert gate.held == [b"data: role\n\n", frame.raw]


def test_frames_behind_the_one_that_commits_are_held_without_judgement() -> None:
    gate = Gate()
    error = Frame(b"data: error\n\n", Kind.ERROR, fault=BOOM)
    assert gate.feed([content(), error, Frame(b": ping\n\n", Kind.NEUTRAL)]) is Verdict.COMMIT
    assert gate.held == [b"data: hi\n\n", b"data: error\n\n", b": ping\n\n"]
    assert gate.fault is None


def test_an_error_discards_everything_held_and_keeps_its_fault() -> None:
    gate = Gate()
    assert gate.feed([neutral(), Frame(b"data: error\n\n", Kind.ERROR, fault=BOOM), content()]) is Verdict.FAIL
    assert gate.held == []
    assert gate.fault is BOOM


def test_an_error_frame_without_a_fault_is_unreadable() -> None:
    gate = Gate()
    assert gate.feed([Frame(b"data: ?\n\n", Kind.ERROR)]) is Verdict.FAIL
    assert gate.fault is UNREADABLE


def test_a_terminator_is_no_proof_of_success() -> None:
    gate = Gate()
    assert gate.feed([neutral(), Frame(b"data: [DONE]\n\n", Kind.END)]) is Verdict.FAIL
    assert gate.fault is EMPTY


def test_a_stream_that_ends_without_content_is_empty() -> None:
    gate = Gate()
    gate.feed([neutral()])
    assert gate.end() is Verdict.FAIL
    assert gate.fault is EMPTY
    assert (EMPTY.retry, EMPTY.counts, EMPTY.blame) == (True, True, Blame.PROVIDER)


@pytest.mark.parametrize("over", ["end", "expire", "done"])
def test_what_could_not_be_read_fails_as_unreadable_however_the_wait_ends(over: str) -> None:
    gate = Gate()
    assert gate.feed([Frame(b"data: {half\n\n", Kind.SUSPECT)]) is Verdict.HOLD
    verdict = gate.feed([Frame(b"data: [DONE]\n\n", Kind.END)]) if over == "done" else getattr(gate, over)()
    assert verdict is Verdict.FAIL
    assert gate.fault is UNREADABLE


def test_content_after_something_unreadable_commits() -> None:
    gate = Gate()
    assert gate.feed([Frame(b"data: {half\n\n", Kind.SUSPECT), content()]) is Verdict.COMMIT


def test_a_slow_model_is_let_through_with_what_it_sent_so_far() -> None:
    gate = Gate()
    gate.feed([neutral()])
    assert gate.expire() is Verdict.COMMIT
    assert gate.held == [b"data: {}\n\n"]


def test_keepalive_comments_are_dropped_while_held_and_never_count() -> None:
    gate = Gate()
    for _ in range(1000):
        assert gate.feed([Frame(b": ping\n\n", Kind.NEUTRAL)]) is Verdict.HOLD
    assert gate.feed([Frame(b":" + b"x" * MAX_BYTES + b"\n\n", Kind.NEUTRAL)]) is Verdict.HOLD
    assert gate.held == []


def test_the_usage_frame_that_only_we_asked_for_is_never_released() -> None:
    gate = Gate()
    usage = Frame(b"data: usage\n\n", Kind.NEUTRAL, usage_only=True)
    assert gate.feed([usage, content(), usage]) is Verdict.COMMIT
    gate.hold([usage])
    assert gate.held == [b"data: hi\n\n"]
    assert gate.size == 0


def test_any_number_of_small_neutral_events_decides_nothing() -> None:
    """Some keep-alives are events (`event: ping`) and must not open the gate."""
    gate = Gate()
    assert {gate.feed([neutral(b"event: ping\n\n")]) for _ in range(1000)} == {Verdict.HOLD}
    assert len(gate.held) == 1000


def test_the_bound_on_bytes_is_exact() -> None:
    gate = Gate()
    assert gate.feed([neutral(b"x" * MAX_BYTES)]) is Verdict.HOLD
    assert gate.feed([neutral(b"x")]) is Verdict.COMMIT


def test_what_could_not_be_read_is_not_let_through_by_its_size() -> None:
    gate = Gate()
    assert gate.feed([Frame(b"x" * MAX_BYTES, Kind.SUSPECT)]) is Verdict.HOLD
    assert gate.feed([neutral(b"x")]) is Verdict.FAIL
    assert (gate.fault, gate.held) == (UNREADABLE, [])


def test_holding_without_judgement_counts_the_bytes() -> None:
    gate = Gate()
    gate.feed([content()])
    gate.hold([neutral(b"12345"), Frame(b"678", Kind.ERROR, fault=BOOM)])
    assert gate.held == [b"data: hi\n\n", b"12345", b"678"]
    assert gate.size == 8


frames = st.builds(
    Frame,
    st.binary(min_size=1, max_size=8).map(lambda raw: b"d" + raw),
    st.sampled_from([Kind.NEUTRAL, Kind.CONTENT, Kind.FINISH, Kind.SUSPECT]),
)


@given(st.lists(frames, max_size=30))
def test_what_is_released_is_what_came_byte_for_byte(given_frames: list[Frame]) -> None:
    """Fed one by one until it commits and held from there, or fed at once: the same bytes and the same decision."""
    at_once, one_by_one = Gate(), Gate()
    verdict = at_once.feed(given_frames)
    so_far = Verdict.HOLD
    for frame in given_frames:
        if so_far is Verdict.HOLD:
            so_far = one_by_one.feed([frame])
        else:
            one_by_one.hold([frame])
    assert so_far is verdict
    assert b"".join(at_once.held) == b"".join(one_by_one.held) == b"".join(frame.raw for frame in given_frames)
