"""Calls that are put off while callers leave, the store is in trouble, and receivers of results are away: none is lost, none comes twice."""

import base64
import hashlib
import hmac
import threading
from pathlib import Path

import pytest
import trio

from tests.acceptance.deferring import DEFER, DOWN, QUICK, done, polled, said, state
from tests.acceptance.limited import bearer, key
from tests.acceptance.test_queue_cancel import cut
from tests.fakes import steps
from tests.fakes.upstream import Exchange, FakeUpstream
from tests.scene import CHAT, PROMPT, Scene, scene
from tests.store.test_kept import rows
from tests.store.test_trouble import emptied, full, store
from trioproxy.call import Request
from trioproxy.journal import EndReason
from trioproxy.phases import deferral
from trioproxy.store.writer import Job

PATIENT = "[defaults]\nbreaker = { failures = 100000 }\n"
HOOK = '[[deferred.webhooks]]\nname = "ours"\nurl = "http://hook.test/results?x=1"\nsecret = { env = "S" }\n'
KEYS = {"a": "sk-secret-a", "deferred.webhooks[ours]": "whsec_" + base64.b64encode(b"k" * 24).decode()}


async def taken(x: Exchange) -> None:
    await x.reply(204)


@pytest.mark.parametrize("streamed", [False, True], ids=["unary", "streamed"])
async def test_wherever_a_caller_leaves_it_is_stored_or_it_is_not(streamed: bool, tmp_path: Path) -> None:
    """Whoever was told 202 has a call that is done; nothing is held for who left, and there is one record of each."""
    told: set[str] = set()
    async with scene("a", toml=PATIENT + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        for at in range(1, 200):
            s.events.clear()

            async def ask() -> None:
                async with s.gateway.dispatch(Request.post(CHAT, {**PROMPT, "stream": streamed})) as answer:
                    assert answer.status == 202
                    told.add(dict(answer.headers)["location"].rpartition("/")[2])

            if not await cut(s, ask, at):
                break
            ends = [ended for ended in s.ended if not ended.request_id.startswith("dfr_")]
            assert len(ends) <= 1, at
        assert 5 < at < 199
        with trio.fail_after(5):
            while s.held():  # noqa: ASYNC110 - what is done meanwhile holds something
                await trio.sleep(0.01)
        assert told
        stored = {id_ for (id_,) in rows(tmp_path / "ledger.db", "SELECT id FROM deferred")}
        assert told <= stored
        s.a.script(steps.chat("hello"))
        for id_ in stored:
            assert said(await done(s, f"/v1/deferred/{id_}")) == "hello"


def readonly(s: Scene) -> None:
    store(s).writer.database.execute("PRAGMA query_only = 1")


def writable(s: Scene) -> None:
    store(s).writer.database.execute("PRAGMA query_only = 0")


@pytest.mark.parametrize(("break_", "mend"), [(full, emptied), (readonly, writable)], ids=["full", "read-only"])
async def test_what_cannot_be_stored_is_not_accepted(break_: object, mend: object, tmp_path: Path) -> None:
    assert callable(break_)
    assert callable(mend)
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        await s.rest(0.6)  # the writer is at rest
        break_(s)
        big = [{"role": "user", "content": "x" * 100_000}]
        reply = await s.post(messages=big)
        assert (reply.status, reply.json["error"]["code"]) == (503, "ledger_unavailable")
        assert "could not be stored" in reply.json["error"]["message"]
        await s.rest(0.01)
        assert (s.ended[0].reason, s.ended[0].note) == (EndReason.CHAIN_EXHAUSTED, "ledger_unavailable")
        mend(s)
        accepted = await polled_post(s, big)
        assert rows(tmp_path / "ledger.db", "SELECT id FROM deferred") == [(accepted,)]


async def polled_post(s: Scene, messages: object) -> str:
    """Ask until it is accepted."""
    with trio.fail_after(10):
        while (reply := await s.post(messages=messages)).status != 202:  # noqa: ASYNC110 - as callers do
            await trio.sleep(0.1)
    return str(reply.json["id"])


async def test_a_result_is_kept_until_it_can_be_stored(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:

        async def troubled(x: Exchange) -> None:
            readonly(s)
            await steps.chat_answer("only once")(x)

        s.a.script(DOWN, troubled, steps.chat("twice"))
        url = (await s.post()).json["poll_url"]
        await polled(s, url, (), lambda _reply: s.a.hits == 2)
        await s.rest(0.5)
        assert (await s.get(url)).json["status"] == "running"
        writable(s)
        assert said(await done(s, url)) == "only once"
        assert s.a.hits == 2


async def test_a_result_is_posted_and_signed_until_it_is_taken(tmp_path: Path) -> None:
    model = DEFER + 'webhook = "ours"'
    async with scene("a", toml=QUICK + HOOK + state(tmp_path), model=model, credentials=KEYS) as s:
        receiver = FakeUpstream("hook").script(steps.error(500), taken).listen(s.network)
        s.a.script(DOWN, steps.chat("hello"))
        told = (await s.post()).json
        end = await done(s, told["poll_url"])
        with trio.fail_after(10):
            while receiver.hits < 2:  # noqa: ASYNC110 - its own task tells
                await trio.sleep(0.02)
        await s.rest(0.3)
        first, second = receiver.requests
        assert first.headers["webhook-id"] == second.headers["webhook-id"] == told["id"]
        assert first.body == second.body
        assert second.json["type"] == "deferred.done"
        assert second.json["data"] == end.json
        signed = f"{told['id']}.{second.headers['webhook-timestamp']}.".encode() + second.body
        wanted = base64.b64encode(hmac.digest(b"k" * 24, signed, hashlib.sha256)).decode()
        assert second.headers["webhook-signature"] == f"v1,{wanted}"
        assert rows(tmp_path / "ledger.db", "SELECT owed, tries FROM deferred") == [(0, 2)]


async def test_a_key_s_own_webhook_goes_before_its_model_s_and_tells_of_expiry(tmp_path: Path) -> None:
    other = '[[deferred.webhooks]]\nname = "theirs"\nurl = "http://their.test/"\n'
    toml = QUICK + HOOK + other + key(rest='webhook = "theirs"') + state(tmp_path)
    async with scene("a", toml=toml, model=DEFER + 'webhook = "ours"\ndefer_ttl = 60', credentials=KEYS) as s:
        ours = FakeUpstream("hook").script(taken).listen(s.network)
        theirs = FakeUpstream("their").script(taken).listen(s.network)
        s.a.script(DOWN)
        told = (await s.post(headers=bearer())).json
        s.wall += 61
        with trio.fail_after(10):
            while not theirs.hits:  # noqa: ASYNC110 - its own task tells
                await trio.sleep(0.02)
        assert theirs.requests[0].json["type"] == "deferred.expired"
        assert theirs.requests[0].json["data"]["id"] == told["id"]
        assert "webhook-signature" not in theirs.requests[0].headers
        assert ours.hits == 0


async def test_what_is_owed_is_told_by_the_next_life(tmp_path: Path) -> None:
    model = DEFER + 'webhook = "ours"'
    async with scene("a", toml=QUICK + HOOK + state(tmp_path), model=model, credentials=KEYS) as s:
        FakeUpstream("hook").script(steps.error(503)).listen(s.network)
        s.a.script(DOWN, steps.chat("hello"))
        url = (await s.post()).json["poll_url"]
        await done(s, url)
    async with scene("a", toml=QUICK + HOOK + state(tmp_path), model=model, credentials=KEYS) as s:
        receiver = FakeUpstream("hook").script(taken).listen(s.network)
        s.wall += 600
        with trio.fail_after(10):
            while not receiver.hits:  # noqa: ASYNC110 - its own task tells
                await trio.sleep(0.02)
        assert receiver.requests[0].headers["webhook-id"] == url.rpartition("/")[2]
        assert s.a.hits == 0


async def test_a_disk_that_hangs_is_waited_for_no_longer_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferral, "PATIENCE", 0.2)
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        stuck = threading.Event()
        store(s).writer.ask(Job(lambda _database: stuck.wait(5), lambda _result, _trouble: None))
        reply = await s.post()
        assert (reply.status, reply.json["error"]["code"]) == (503, "ledger_unavailable")
        stuck.set()
        assert (await polled_post(s, [{"role": "user", "content": "hello"}])).startswith("dfr_")


async def test_a_result_that_is_no_json_is_told_as_text(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN, steps.error(400, b"<p>no \xff</p>", [("content-type", "text/html")]))
        end = await done(s, (await s.post()).json["poll_url"])
        assert (end.status, end.json["result"]["status"]) == (200, 400)
        assert end.json["result"]["body"]
