"""Who passes before whom while calls wait: tenants by what they were given, baselines first, and a spike without a collapse."""

import gc

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.acceptance.limited import bearer, key, tenant
from tests.acceptance.queued import ONE, Crowd, line, of_class, queue_ms
from tests.fakes import steps
from tests.scene import PROMPT, scene
from trioproxy.phases.admit import Admission
from trioproxy.policy.tenant import TenantShare
from trioproxy.policy.tickets import Ticket
from trioproxy.waiting_room import Waiter

PATIENT = "[defaults.queue]\nmax_wait = 500\nbound = 1000\n"
LONG = {"messages": [{"role": "user", "content": "All work and no play makes Jack a dull boy. " * 900}]}
THOUSAND = {"max_tokens": 989}  # with a prompt of 11 tokens


def asked_by(name: str, traffic_class: str = "") -> list[tuple[str, str]]:
    return [*bearer(name), ("x-trioproxy-class", traffic_class)] if traffic_class else list(bearer(name))


def two(first: str = "", second: str = "") -> str:
    keys = key("ann", 'tenant = "ann"') + key("bob", 'tenant = "bob"')
    return tenant(first, "ann") + tenant(second, "bob") + keys


async def test_one_tenants_long_prompts_do_not_hold_up_anothers_chat(autojump_clock: MockClock) -> None:
    """Thirty calls of 10,000 tokens each are in line first; a chat call waits for the one that is under way, no longer."""
    async with scene("a", toml=ONE + PATIENT + two()) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=2))
        crowd = Crowd(s, nursery)
        for number in range(30):
            crowd.send(f"long {number}", asked_by("ann"), max_tokens=10, **LONG)
        await wait_all_tasks_blocked()
        await trio.sleep(1)
        for number in range(10):
            crowd.send(f"chat {number}", asked_by("bob"), max_tokens=10)
            await trio.sleep(6)
        chats = [queue_ms(crowd.replies[f"chat {number}"]) for number in range(10)]
        assert chats == [1000.0] * 10
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("weight, passed", [(1, 20), (3, 30)])
async def test_tenants_share_by_weight(weight: int, passed: int, autojump_clock: MockClock) -> None:
    async with scene("a", toml=ONE + PATIENT + two(f"weight = {weight}")) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=1))
        crowd = Crowd(s, nursery)
        crowd.send("holder", asked_by("bob"))
        await wait_all_tasks_blocked()
        for number in range(40):
            crowd.send(f"ann {number}", asked_by("ann"))
            crowd.send(f"bob {number}", asked_by("bob"))
        await trio.sleep(41.5)
        served = [name.split()[0] for name in crowd.order[1:41]]
        assert abs(served.count("ann") - passed) <= 1
        nursery.cancel_scope.cancel()


async def test_the_nightly_batch_waits_twenty_minutes_and_no_longer(autojump_clock: MockClock) -> None:
    toml = ONE + "[defaults]\ntotal_timeout = 3000\nidle_timeout = 2000\nheaders_timeout = 2000\n[classes.batch]\n"
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("day", delay=1199), steps.chat_answer("night", delay=5))
        crowd = Crowd(s, nursery)
        crowd.send("day", of_class("batch"))
        await wait_all_tasks_blocked()
        for name in ("night", "late"):
            crowd.send(name, of_class("batch"))
            await wait_all_tasks_blocked()
        await trio.sleep(1300)
        assert crowd.when == {"day": 1199.0, "late": 1200.0, "night": 1204.0}
        assert crowd.statuses() == {"day": 200, "night": 200, "late": 429}
        assert queue_ms(crowd.replies["night"]) == 1_199_000.0
        late = crowd.replies["late"]
        assert (late.json["error"]["code"], late.headers["x-should-retry"]) == ("queue_timeout", "false")
        assert int(late.headers["retry-after"]) > 60
        assert s.held() == {}


BATCH = "[classes.batch]\n[classes.batch.queue]\ntokens_per_minute = 60000\nmax_wait = 300\n"


def share(s: object, name: str) -> TenantShare:
    (found,) = [each for each in line(s, "batch").tenants if each.tenant == name]  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("tokens", [500, 800, 1000])
async def test_what_was_lent_is_reclaimed_within_the_stated_bound(tokens: int, autojump_clock: MockClock) -> None:
    """A pool of 1,000 tokens a second, half of it ann's. Bob has borrowed all; ann's call waits for its own refill alone."""
    async with scene("a", toml=BATCH + two("baseline = { batch = 30000 }")) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", usage=(11, 989)))
        crowd = Crowd(s, nursery)
        for number in range(100):
            crowd.send(f"bob {number}", asked_by("bob", "batch"), **THOUSAND)
        await trio.sleep(3.5)
        assert sum(name.startswith("bob") for name in crowd.order) == 13  # ten seconds' burst, and one a second
        crowd.send("ann", asked_by("ann", "batch"), max_tokens=tokens - 11)
        await wait_all_tasks_blocked()
        assert round(share(s, "ann").reclaimed) == 2000  # five seconds of its own, less half a second that is there
        assert (share(s, "bob").borrowed, share(s, "ann").guaranteed) == (13_000, 500.0)
        await trio.sleep(5)
        assert queue_ms(crowd.replies["ann"]) == pytest.approx(tokens - 500, abs=2)
        assert share(s, "ann").assured == 1000
        assert share(s, "ann").reclaimed == 0.0
        nursery.cancel_scope.cancel()


async def test_a_pool_is_a_ceiling_also_where_nothing_else_is_limited(autojump_clock: MockClock) -> None:
    toml = "[classes.background]\n[classes.background.queue]\ntokens_per_minute = 60000\nmax_wait = 2.5\n"
    async with scene("a", toml=toml) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", usage=(11, 989)))
        crowd = Crowd(s, nursery)
        for number in range(20):
            crowd.send(f"{number}", of_class("background"), **THOUSAND)
        await trio.sleep(3)
        granted = [crowd.when[name] for name, reply in crowd.replies.items() if reply.status == 200]
        assert granted == [0.0] * 10 + [1.0, 2.0]  # ten seconds' burst, and one a second
        refused = [reply.json["error"] for reply in crowd.replies.values() if reply.status == 429]
        assert len(refused) == 8
        assert {error["limiter"] for error in refused} == {"class.tokens_per_minute"}
        nursery.cancel_scope.cancel()


async def test_a_spike_of_fifty_times_the_capacity_is_no_collapse(autojump_clock: MockClock) -> None:
    """One call a second is served, fifty a second come for half a minute: bounded, at once, and no slower for the served."""
    async with scene("a", toml=ONE + "[classes.interactive]\n") as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", delay=1))
        crowd = Crowd(s, nursery)
        deepest, alive = 0, []
        for number in range(1500):
            crowd.send(f"{number}", of_class("interactive"))
            await trio.sleep(0.02)
            deepest = max(deepest, line(s, "interactive").waiting)
            if number % 500 == 499:
                s.events.clear()
                alive.append(sum(isinstance(each, Admission | Waiter | Ticket) for each in gc.get_objects()) // 3)
        await trio.sleep(2)
        served = [ended for ended in crowd.replies.values() if ended.status == 200]
        assert 25 <= len(served) <= 32
        assert deepest <= 16  # 300 ms of arrivals, and never more than its bound of 64
        assert all(queue_ms(reply) <= 300 for reply in served)
        refused = [reply for reply in crowd.replies.values() if reply.status == 429]
        assert len(refused) + len(served) == 1500
        assert all(queue_ms(reply) <= 300 for reply in refused)
        assert all("retry-after" in reply.headers for reply in refused)
        assert max(alive) <= 40  # those in the line and under way, and some in their last step
        assert s.held() == {}
        prompt = await s.post(headers=of_class("interactive"), **PROMPT)
        assert (prompt.status, queue_ms(prompt)) == (200, 0.0)


async def test_each_of_several_baselines_is_reclaimed_within_its_part_of_the_bound(autojump_clock: MockClock) -> None:
    """A pool of 1,000 tokens a second: 500 for ann, 300 for eve, and reclaim is 5 s. Bob has borrowed what there was.

    Ann comes back first, eve a second later. Each waits for the refill of what was lent and no longer than `reclaim` times the
    parts that are guaranteed; the borrower waits until what they saved up and have not spent is there again.
    """
    keys = "".join(key(name, f'tenant = "{name}"') for name in ("ann", "bob", "eve"))
    ann, eve = ("baseline = { batch = 30000 }", "baseline = { batch = 18000 }")
    tenants = tenant(ann, "ann") + tenant("", "bob") + tenant(eve, "eve") + keys
    async with scene("a", toml=BATCH + tenants) as s, trio.open_nursery() as nursery:
        s.a.script(steps.chat_answer("hello", usage=(11, 989)))
        crowd = Crowd(s, nursery)
        for number in range(100):
            crowd.send(f"bob {number}", asked_by("bob", "batch"), **THOUSAND)
        await trio.sleep(3.5)
        for number in range(2):
            crowd.send(f"ann {number}", asked_by("ann", "batch"), **THOUSAND)
        await trio.sleep(1)
        crowd.send("eve 0", asked_by("eve", "batch"), **THOUSAND)
        await trio.sleep(10)
        waits = [queue_ms(crowd.replies[name]) for name in ("ann 0", "ann 1", "eve 0")]
        # 500 tokens are there, and 1,000 a second come in: for ann's first, her second, and eve's.
        assert sorted(waits[:2]) + waits[2:] == pytest.approx([500, 1500, 1500], abs=2)
        assert max(waits) <= 0.8 * 5_000  # the parts that are guaranteed, of five seconds
        borrowed = sorted(crowd.when[name] for name in crowd.order if name.startswith("bob"))
        assert borrowed[10:] == pytest.approx([1.0, 2.0, 3.0, 11.0, 12.0, 13.0, 14.0], abs=0.01)
        assert all(share(s, name).reclaimed == 0.0 for name in ("ann", "eve"))
        assert share(s, "eve").assured + share(s, "eve").borrowed == 1000
        nursery.cancel_scope.cancel()
