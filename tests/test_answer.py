"""An answer: whole or still coming, handed out once, and delivered only when its reader has all of it."""

import trio
from attrs import define, field
from trio.testing import MockClock

from trioproxy.answer import Answer

LINES = b"content-type: application/json\r\nX-Request-Id:  req_1 \r\nx-odd: a: b\r\nx-latin: \xfc\r\n"


@define(eq=False)
class Pieces:
    """A source of scripted pieces, a second apart."""

    pieces: list[bytes]
    ended: bool = field(init=False, default=False)
    ready: bool = False

    async def receive(self) -> bytes:
        await trio.sleep(1)
        piece = self.pieces.pop(0) if self.pieces else b""
        self.ended = not self.pieces
        return piece

    def interrupt(self) -> None:
        self.pieces = [b"the end"]


def test_header_lines_are_shown_as_pairs_in_lower_case() -> None:
    assert Answer(200, LINES).headers == [
        ("content-type", "application/json"),
        ("x-request-id", "req_1"),
        ("x-odd", "a: b"),
        ("x-latin", "ü"),
    ]
    assert Answer(200, b"").headers == []


async def test_a_whole_body_is_handed_out_once(autojump_clock: MockClock) -> None:
    answer = Answer(200, LINES, b"body")
    assert (answer.whole, answer.ended, answer.delivered, answer.ready) == (True, False, False, True)
    assert await answer.receive() == b"body"
    assert (answer.ended, answer.delivered, answer.sent) == (True, True, 4)
    assert await answer.receive() == b""
    assert answer.sent == 4
    assert trio.current_time() == 0.0


async def test_an_answer_without_a_body_has_ended() -> None:
    answer = Answer(204, b"")
    assert (answer.whole, answer.ended, answer.delivered) == (True, True, True)
    assert await answer.read() == b""


async def test_a_streamed_body_comes_from_its_source_to_the_end(autojump_clock: MockClock) -> None:
    answer = Answer(200, LINES, source=Pieces([b"one", b"two"]))
    assert (answer.whole, answer.ended, answer.ready) == (False, False, False)
    assert await answer.receive() == b"one"
    assert (answer.ended, answer.delivered, answer.sent) == (False, False, 3)
    assert await answer.receive() == b"two"
    assert (answer.ended, answer.delivered, answer.sent) == (True, True, 6)


async def test_what_is_held_comes_before_what_is_still_to_come(autojump_clock: MockClock) -> None:
    answer = Answer(200, LINES, b"held ", Pieces([b"later"]))
    assert answer.ready
    assert await answer.receive() == b"held "
    assert trio.current_time() == 0.0
    assert not answer.ended
    assert await answer.receive() == b"later"


async def test_reading_gives_the_whole_body_in_either_form(autojump_clock: MockClock) -> None:
    assert await Answer(200, LINES, b"body").read() == b"body"
    assert await Answer(200, LINES, b"a", Pieces([b"b", b"c"])).read() == b"abc"


async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    answer = Answer(200, LINES, source=Pieces([b"one"]))
    with trio.move_on_after(0.5):
        await answer.receive()
    assert (answer.sent, answer.ended) == (0, False)
    assert await answer.receive() == b"one"


async def test_what_a_door_still_holds_or_lost_was_not_delivered() -> None:
    answer = Answer(200, LINES, b"body")
    await answer.read()
    seen = []
    for answer.on_its_way, answer.lost in ((True, False), (False, True), (False, False)):
        seen.append(answer.delivered)
    assert seen == [False, False, True]


def test_the_body_is_not_in_its_repr() -> None:
    assert "spoken" not in repr(Answer(200, LINES, b"spoken words"))
