"""A foreign Trio program with a gateway inside: no data door, no socket of ours, only what `import trioproxy` offers."""

import importlib
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import trioproxy
from tests.fakes import steps
from tests.fakes.network import open_network
from tests.fakes.upstream import FakeUpstream
from trioproxy import ChainExhausted, ConfigError, Gateway, Refusal, Request, TrioproxyError, open_gateway, parse_config
from trioproxy.journal import EndReason, Event, ExchangeEnded

CHAT = "/v1/chat/completions"
PROMPT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
STREAM = PROMPT | {"stream": True}


@attrs.define(eq=False)
class Inside:
    """A gateway in a program, the upstreams behind it, and what was told of its exchanges."""

    gateway: Gateway
    a: FakeUpstream
    b: FakeUpstream
    events: list[Event] = attrs.field(factory=list)

    def reasons(self) -> list[EndReason]:
        return [event.reason for event in self.events if isinstance(event, ExchangeEnded)]

    def at_rest(self) -> bool:
        """Whether nothing is held for any call."""
        return not any(each.in_flight or each.waiting for each in self.gateway.statistics().values())


@asynccontextmanager
async def inside(defaults: str = "") -> AsyncGenerator[Inside]:
    """Two channels on a network in memory, `a` before `b`."""
    a, b = FakeUpstream("a"), FakeUpstream("b")
    channels = "".join(
        f'[[channels]]\nname = "{each.name}"\nbase_url = "{each.base_url}"\nauth = "none"\n' for each in (a, b)
    )
    links = '{ channel = "a", model = "x" }, { channel = "b", model = "x" }'
    model = f'[[models]]\nname = "m"\norder = "listed"\nchannels = [{links}]\n'
    config = parse_config(f"[defaults]\n{defaults}\n{channels}{model}", "inside.toml")
    async with open_network() as network:
        a.listen(network)
        b.listen(network)
        async with open_gateway(config, dial=network.dial) as gateway:
            program = Inside(gateway, a, b)
            gateway.journal.subscribe(program.events.append)
            yield program


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_unary_call_is_answered_whatever_the_clock_says(clock: str) -> None:
    """A request's time is the moment it was made, so its deadlines are right on a clock that began long ago."""

    async def program() -> None:
        async with inside() as p:
            p.a.script(steps.chat("hello there"))
            async with p.gateway.dispatch(Request.post(CHAT, PROMPT)) as answer:
                assert answer.status == 200
                assert dict(answer.headers)["x-trioproxy-channel"] == "a"
                said = json.loads(await answer.read())
            assert said["choices"][0]["message"]["content"] == "hello there"
            assert p.reasons() == [EndReason.ANSWERED]
            assert p.at_rest()

    virtual = MockClock(autojump_threshold=0)
    virtual.jump(1_000_000)
    trio.run(program, clock=virtual if clock == "virtual" else None)


async def test_a_stream_is_read_as_it_comes(autojump_clock: MockClock) -> None:
    async with inside() as p:
        p.a.script(steps.chat_stream(["one ", "two ", "three"], every=1))
        began, arrived, text = trio.current_time(), [], b""
        async with p.gateway.dispatch(Request.post(CHAT, STREAM)) as answer:
            assert not answer.whole
            while data := await answer.receive():
                arrived.append(trio.current_time() - began)
                text += data
        assert arrived == [1, 2, 3, 4, 6]  # at 5 came the usage frame, which is the gateway's own
        assert text.endswith(steps.DONE)
        assert p.reasons() == [EndReason.ANSWERED]
        assert p.at_rest()


async def test_a_failing_channel_is_passed_over_without_a_word(autojump_clock: MockClock) -> None:
    async with inside() as p:
        p.a.script(steps.error(503))
        p.b.script(steps.chat("from b"))
        async with p.gateway.dispatch(Request.post(CHAT, PROMPT)) as answer:
            assert (answer.status, answer.error) == (200, None)
            assert dict(answer.headers)["x-trioproxy-attempts"] == "2"
            assert b"from b" in await answer.read()


async def test_leaving_early_closes_the_upstream_at_once(autojump_clock: MockClock) -> None:
    async with inside() as p:
        p.a.script(steps.chat_stream(["word "] * 100, every=1))
        async with p.gateway.dispatch(Request.post(CHAT, STREAM)) as answer:
            await answer.receive()
            left = trio.current_time()
        assert trio.current_time() == left
        await trio.sleep(1)
        assert p.a.closed_at == [left]
        assert p.reasons() == [EndReason.CLIENT_LEFT]
        assert p.at_rest()


async def test_leaving_before_anything_was_decided_gives_the_call_up(autojump_clock: MockClock) -> None:
    """Behind keep-alives the chain is still being walked; the block does not wait for it."""
    async with inside("keepalive_after = 2") as p:
        p.a.script(steps.silence())
        async with p.gateway.dispatch(Request.post(CHAT, STREAM)) as answer:
            assert (await answer.receive()).startswith(b":")
            left = trio.current_time()
        assert trio.current_time() == left
        await trio.sleep(1)
        assert p.a.closed_at == [left]
        assert p.b.hits == 0
        assert p.reasons() == [EndReason.CLIENT_LEFT]
        assert p.at_rest()


@pytest.mark.parametrize("payload", [PROMPT, STREAM], ids=["unary", "streamed"])
async def test_a_timeout_around_the_block_gives_the_call_up(
    payload: dict[str, object], autojump_clock: MockClock
) -> None:
    async with inside() as p:
        p.a.script(steps.silence())
        began = trio.current_time()
        with trio.move_on_after(3) as scope:
            async with p.gateway.dispatch(Request.post(CHAT, payload)):
                pytest.fail("nobody answered")
        assert scope.cancelled_caught
        await trio.sleep(1)
        assert p.a.closed_at == [began + 3]
        assert p.b.hits == 0
        assert p.reasons() == [EndReason.CLIENT_LEFT]
        assert p.gateway.statistics()["a"].failures == 0
        assert p.at_rest()


async def test_a_timeout_around_one_receive_loses_nothing(autojump_clock: MockClock) -> None:
    async with inside() as p:
        p.a.script(steps.chat_stream(["one ", "two ", "three"], every=5))
        text, waits = b"", 0
        async with p.gateway.dispatch(Request.post(CHAT, STREAM)) as answer:
            while not answer.ended:
                with trio.move_on_after(2) as scope:
                    text += await answer.receive()
                waits += scope.cancelled_caught
        assert waits > 2
        assert [word for word in (b"one ", b"two ", b"three") if word in text] == [b"one ", b"two ", b"three"]
        assert text.endswith(steps.DONE)
        assert p.reasons() == [EndReason.ANSWERED]


@pytest.mark.parametrize("payload", [PROMPT, STREAM], ids=["unary", "streamed"])
async def test_an_exception_in_the_body_comes_out_and_frees_everything(
    payload: dict[str, object], autojump_clock: MockClock
) -> None:
    async with inside() as p:
        p.a.script(steps.chat("hello there, and more"))
        bare = pytest.raises(ZeroDivisionError, match="mine")
        grouped = pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError, match="mine"))
        with grouped if payload is STREAM else bare:
            async with p.gateway.dispatch(Request.post(CHAT, payload)) as answer:
                await answer.receive()
                raise ZeroDivisionError("mine")
        assert p.reasons() == [EndReason.BUG]
        assert p.at_rest()


def fail(why: str) -> None:
    raise KeyError(why)


async def test_except_star_takes_an_exception_of_the_body_from_every_answer(autojump_clock: MockClock) -> None:
    """A stream has a nursery around it and raises it in a group, others raise it bare; `except*` need not know."""
    caught = []
    async with inside() as p:
        p.a.script(steps.chat("hello"))
        for path in (CHAT, "/v1/nowhere"):
            try:
                async with p.gateway.dispatch(Request.post(path, PROMPT)):
                    fail(path)
            except* KeyError as group:
                caught += [str(each) for each in group.exceptions]
    assert caught == [repr(CHAT), repr("/v1/nowhere")]


async def test_what_can_be_expected_to_go_wrong_is_an_answer(autojump_clock: MockClock) -> None:
    async with inside() as p:
        p.a.script(steps.error(500))
        p.b.script(steps.error(500))
        async with p.gateway.dispatch(
            Request.post(CHAT, {"model": "unknown", "messages": PROMPT["messages"]})
        ) as answer:
            assert answer.status == 404
            assert isinstance(answer.error, Refusal)
            assert json.loads(await answer.read())["error"]["code"] == "model_not_found"
        async with p.gateway.dispatch(Request.post(CHAT, PROMPT)) as answer:
            assert answer.status == 500
            assert isinstance(answer.error, ChainExhausted)
            assert len(answer.error.faults) == 2
        assert p.reasons() == [EndReason.REFUSED_REQUEST, EndReason.CHAIN_EXHAUSTED]


async def test_two_gateways_in_one_process_know_nothing_of_each_other(autojump_clock: MockClock) -> None:
    async with inside() as one, inside() as two:
        one.a.script(steps.error(500))
        one.b.script(steps.chat("from one"))
        two.a.script(steps.chat("from two"))
        async with (
            one.gateway.dispatch(Request.post(CHAT, PROMPT)) as first,
            two.gateway.dispatch(Request.post(CHAT, PROMPT)) as second,
        ):
            assert b"from one" in await first.read()
            assert b"from two" in await second.read()
        assert (one.gateway.statistics()["a"].failures, two.gateway.statistics()["a"].failures) == (1, 0)
        assert (len(one.reasons()), len(two.reasons())) == (1, 1)


async def test_many_calls_at_once_share_one_gateway(autojump_clock: MockClock) -> None:
    async with inside() as p:
        p.a.script(steps.after(5, steps.chat("hello")))
        answered: list[int] = []

        async def ask() -> None:
            async with p.gateway.dispatch(Request.post(CHAT, PROMPT)) as answer:
                answered.append(answer.status)

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(ask)
        assert answered == [200] * 50
        assert trio.current_time() - began == 5
        assert p.at_rest()


async def test_a_local_channel_needs_no_key_and_is_sent_none(autojump_clock: MockClock) -> None:
    """`trioproxy check` lets a channel on this machine go without `api_key`; so it is asked, without a credential."""
    local = FakeUpstream("local", host="localhost").script(steps.chat("hello"))
    toml = f"""
        [[channels]]
        name = "local"
        base_url = "{local.base_url}"
        [[models]]
        name = "m"
        channels = [{{ channel = "local", model = "x" }}]
    """
    async with open_network() as network:
        local.listen(network)
        async with open_gateway(parse_config(toml, "local.toml"), dial=network.dial) as gateway:
            assert gateway.ready()
            async with gateway.dispatch(Request.post(CHAT, PROMPT)) as answer:
                assert answer.status == 200
    assert "authorization" not in local.requests[0].headers


def test_a_wrong_configuration_says_everything_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config('[listen]\ndata = 3\n[[channels]]\nname = "a"\n', "inside.toml")
    assert len(caught.value.faults) > 2


def test_every_name_that_is_offered_is_the_one_from_its_home() -> None:
    for name in trioproxy.__all__:
        value = getattr(trioproxy, name)
        home = getattr(value, "__module__", "trioproxy")
        assert name == "__version__" or value is getattr(importlib.import_module(home), name)
    assert dir(trioproxy) == sorted(trioproxy.__all__)
    assert all(issubclass(family, TrioproxyError) for family in (ConfigError, Refusal, ChainExhausted))


def test_a_name_that_is_not_offered_says_what_is() -> None:
    with pytest.raises(AttributeError, match=r"'open_gatewya'.*open_gateway"):
        _ = trioproxy.open_gatewya  # type: ignore[attr-defined]


def test_help_and_a_bare_import_do_not_load_trio() -> None:
    """Both answer at once; the command line stays quick however large the package grows."""
    heavy = "sorted({'trio', 'httptools', 'cattrs', 'structlog', 'importlib.metadata'} & set(sys.modules))"
    script = f"import sys, trioproxy\nfrom trioproxy.cli import main\nmain(['--help'], standalone_mode=False)\nprint({heavy})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=15)  # noqa: S603 - ours
    assert "Commands" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
