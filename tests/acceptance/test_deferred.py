"""Where no channel answers, a call may be put off: stored, answered 202, done when a channel is back, fetched by its tenant alone."""

import json
from pathlib import Path

import pytest
import trio

from tests.acceptance.deferring import DEFER, DOWN, QUICK, done, polled, removed, state
from tests.acceptance.limited import bearer, key
from tests.fakes import steps
from tests.fakes.client import Reply
from tests.scene import CHAT, scene
from trioproxy.call import Request
from trioproxy.journal import EndReason

TWO = key("k", 'tenant = "acme"') + key("k2", 'tenant = "acme"') + key("other", 'tenant = "rival"')


@pytest.mark.parametrize("streamed", [False, True])
async def test_it_is_accepted_done_when_a_channel_is_back_and_fetched(streamed: bool, tmp_path: Path) -> None:
    async with scene("a", "b", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        s.b.script(DOWN)
        reply = await s.post(stream=streamed, user="u1")
        told = reply.json
        assert (reply.status, told["object"], told["status"]) == (202, "deferred", "pending")
        assert reply.headers["x-trioproxy-degraded"] == "defer"
        assert reply.headers["location"] == told["poll_url"] == f"/v1/deferred/{told['id']}"
        assert int(reply.headers["retry-after"]) >= 1
        assert told["expires_at"] - told["created_at"] == 86_400
        assert "x-should-retry" not in reply.headers
        await s.rest(0.05)
        ended = s.ended[0]
        assert (ended.reason, ended.status, ended.note, ended.cost) == (
            EndReason.DEFERRED,
            202,
            "upstream_unavailable",
            0,
        )
        waiting = await s.get(told["poll_url"])
        assert (waiting.status, waiting.json["id"]) == (202, told["id"])
        s.a.script(steps.chat("hello at last"))
        end = await done(s, told["poll_url"])
        assert (end.status, end.json["status"]) == (200, "done")
        result = end.json["result"]
        assert (result["status"], result["body"]["choices"][0]["message"]["content"]) == (200, "hello at last")
        assert end.json["runs"] >= 1
        sent = json.loads(s.a.requests[-1].body)
        assert not sent.get("stream")
        assert sent["user"] == "u1"
        answered = [ended for ended in s.ended if ended.reason is EndReason.ANSWERED]
        assert [(ended.request_id, ended.model) for ended in answered] == [(told["id"], "m")]
        assert s.held() == {}


async def test_what_is_the_caller_s_own_is_told_at_once(tmp_path: Path) -> None:
    async with scene("a", toml=state(tmp_path), model=DEFER) as s:
        s.a.script(steps.error(400))
        assert (await s.post()).status == 400
        assert (await s.post({"model": "m"})).status == 400


async def test_a_refusal_of_the_provider_is_a_result(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN, steps.error(400, {"error": {"message": "too long", "code": "context_length_exceeded"}}))
        url = (await s.post()).json["poll_url"]
        end = await done(s, url)
        assert (end.status, end.json["status"], end.json["result"]["status"]) == (200, "done", 400)
        assert end.json["result"]["body"]["error"]["code"] == "context_length_exceeded"


async def test_others_see_nothing_and_the_tenant_s_other_keys_do(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + TWO + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        url = (await s.post(headers=bearer("k"))).json["poll_url"]
        assert (await s.get(url, bearer("k2"))).status == 202
        assert (await s.get(url, bearer("other"))).status == 404
        assert (await removed(s, url, bearer("other"))).status == 404
        assert (await s.get(url)).status == 401
        assert (await s.get("/v1/deferred/dfr_none", bearer("k"))).status == 404


async def test_it_can_be_cancelled_until_it_has_begun(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN, steps.chat_answer("hello", delay=0.3))
        first, second = [(await s.post()).json["poll_url"] for _ in range(2)]
        gone = await removed(s, second)
        assert (gone.status, gone.json["status"]) == (200, "cancelled")
        assert (await removed(s, second)).status == 200
        told = await s.get(second)
        assert (told.status, told.json["error"]["code"]) == (410, "deferred_cancelled")
        await polled(s, first, (), lambda reply: reply.json["status"] == "running")
        begun = await removed(s, first)
        assert (begun.status, begun.json["error"]["code"]) == (409, "deferred_begun")
        assert begun.headers["x-should-retry"] == "false"
        assert (await done(s, first)).status == 200
        assert s.a.hits == 2


async def test_time_runs_out(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER + "defer_ttl = 3600") as s:
        s.a.script(DOWN)
        url = (await s.post()).json["poll_url"]
        s.wall += 3601
        end = await s.get(url)
        assert (end.status, end.json["status"], end.json["error"]["code"]) == (410, "expired", "deferred_expired")


async def test_the_same_idempotency_key_is_the_same_call_also_at_once(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + TWO + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        ids: list[str] = []

        async def ask(name: str) -> None:
            reply = await s.post(headers=[*bearer(name), ("idempotency-key", "order 7")])
            assert reply.status == 202
            ids.append(reply.json["id"])

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, "k")
                nursery.start_soon(ask, "k2")
        assert len(set(ids)) == 1
        await ask("other")
        assert len(set(ids)) == 2
        hits = s.a.hits
        await ask("k")
        assert len(set(ids)) == 2
        assert s.a.hits == hits  # it is known before anybody is asked
        other = await s.post(headers=[*bearer(), ("idempotency-key", "order 7")], user="somebody else")
        assert (other.status, other.json["error"]["param"]) == (400, "idempotency-key")
        bad = await s.post(headers=[*bearer(), ("idempotency-key", "x" * 300)])
        assert bad.status == 400


async def test_a_repetition_after_the_end_is_no_second_call(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN, steps.chat("once"))
        headers = [("idempotency-key", "order 7")]
        told = (await s.post(headers=headers)).json
        await done(s, told["poll_url"])
        again = await s.post(headers=headers)
        assert (again.status, again.json["id"], again.json["status"]) == (202, told["id"], "done")
        assert s.a.hits == 2
        await s.rest(0.05)
        assert "repeated" in [ended.note for ended in s.ended]


async def test_classes_go_before_age(tmp_path: Path) -> None:
    toml = "[classes.batch]\n[classes.interactive]\n[deferred]\nconcurrency = 1\n"
    async with scene("a", toml=QUICK + toml + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        urls = []
        for name in ("batch", "batch", "interactive"):
            headers = [("x-trioproxy-class", name), ("x-trioproxy-session", name)]
            urls.append((await s.post(headers=headers)).json["poll_url"])
        s.a.script(steps.chat("hello"))
        for url in urls:
            assert (await done(s, url)).status == 200
        ran = [ended for ended in s.ended if ended.reason is EndReason.ANSWERED]
        assert [ended.request_id for ended in ran] == [url.rpartition("/")[2] for url in (urls[2], urls[0], urls[1])]
        assert [ended.session for ended in ran] == ["interactive", "batch", "batch"]


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ("max_calls = 2", "max_calls = 2"),
        ("tenant_calls = 2", "tenant_calls = 2"),
        ("tenant_bytes = 150", "tenant_bytes = 150"),
        ("max_bytes = 150", "max_bytes = 150"),
    ],
)
async def test_beyond_the_bounds_there_is_an_error_that_says_so(bounds: str, said: str, tmp_path: Path) -> None:
    async with scene("a", toml=f"{QUICK}[deferred]\n{bounds}\n" + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        replies = [await s.post() for _ in range(4)]
        assert [reply.status for reply in replies] == [202, 202, 503, 503]
        assert replies[-1].json["error"]["code"] == "deferral_full"
        assert said in replies[-1].json["error"]["message"]
        await s.rest(0.05)
        refused = [ended for ended in s.ended if not ended.request_id.startswith("dfr_")][-1]
        assert (refused.reason, refused.note) == (EndReason.CHAIN_EXHAUSTED, "deferral_full")


async def test_a_call_that_its_queue_turned_away_is_put_off(tmp_path: Path) -> None:
    toml = '[defaults.queue]\nbound = 0\notherwise = "defer"\n[organization]\nlimits = { concurrency = 1 }\n'
    async with scene("a", toml=toml + state(tmp_path), model=DEFER) as s:
        s.a.script(steps.chat_answer("first", delay=0.2), steps.chat("second"))
        replies: list[Reply] = []

        async def first() -> None:
            replies.append(await s.post())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await trio.sleep(0.05)
            second = await s.post()
        assert (second.status, replies[0].status) == (202, 200)
        end = await done(s, second.json["poll_url"])
        assert ("deferred", "queue_full") in [(ended.reason.value, ended.note) for ended in s.ended]
        assert end.json["result"]["body"]["choices"][0]["message"]["content"] == "second"


async def test_a_tenant_s_limits_hold_for_what_was_put_off(tmp_path: Path) -> None:
    toml = key("k", 'tenant = "acme"') + '[[tenants]]\nname = "acme"\nlimits = { requests_per_day = 1 }\n'
    async with scene("a", toml=QUICK + toml + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN, DOWN, steps.chat("hello"))
        urls = [(await s.post(headers=bearer())).json["poll_url"] for _ in range(2)]
        first = await done(s, urls[0], bearer())
        assert first.json["result"]["status"] == 200
        await polled(s, urls[1], bearer(), lambda reply: reply.json["runs"] > 0 and reply.json["status"] == "pending")
        assert s.ended[-1].reason is EndReason.REFUSED_QUOTA
        s.wall += 86_000
        assert (await done(s, urls[1], bearer())).json["result"]["status"] == 200


async def test_a_key_that_is_good_no_more_gets_no_call(tmp_path: Path) -> None:
    expiring = key("k", 'tenant = "acme"\nexpires = "2025-11-24T16:10:00Z"') + key("k2", 'tenant = "acme"')
    async with scene("a", toml=QUICK + expiring + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        url = (await s.post(headers=bearer())).json["poll_url"]
        s.wall += 3600
        s.a.script(steps.chat("hello"))
        end = await done(s, url, bearer("k2"))
        assert end.json["result"]["status"] == 401
        assert s.a.hits < 4


async def test_a_restart_goes_on_and_results_stay(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        url = (await s.post()).json["poll_url"]
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(steps.chat("hello"))
        end = await done(s, url)
        assert end.json["result"]["body"]["choices"][0]["message"]["content"] == "hello"
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        assert (await s.get(url)).json["result"] == end.json["result"]
        s.wall += 86_401
        await polled(s, url, (), lambda reply: reply.status == 404)
        assert s.a.hits == 0


async def test_an_embedder_is_put_off_too(tmp_path: Path) -> None:
    async with scene("a", toml=QUICK + state(tmp_path), model=DEFER) as s:
        s.a.script(DOWN)
        async with s.gateway.dispatch(Request.post(CHAT, {"model": "m", "messages": [{"role": "user"}]})) as answer:
            assert answer.status == 202
            assert answer.error is not None
