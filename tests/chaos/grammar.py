"""Configurations and traffic by chance: every feature may be there beside every other. The same seed draws the same.

Times are virtual seconds. What is drawn is always a good configuration; what is in it may be cruel.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from attrs import define, field, frozen

from tests.acceptance.limited import tenant
from tests.fakes import steps
from tests.fakes.upstream import Exchange, Step

T = TypeVar("T")

WORD = "xyzzy-of-the-prompt"  # in every prompt, and nowhere to be seen afterwards
HOOK = "http://hook.test/in/T0KEN"
LASTS = 90.0  # seconds of traffic
MANY = 10**9  # of what is only to be counted
CLASSES = ("interactive", "agentic", "batch", "eval", "background", "assured", "kept", "drained")
VERBS = ("start", "step", "pause", "rollback", "step")
TENANTS = ("acme", "bolt", "core")


@frozen
class Ask:
    """One call. `leaves` is how long its caller stays, `slow` how long it takes over each frame.

    `cut` set: it comes through no socket, and is cancelled at that step of its task; 0: it is not.
    """

    at: float
    model: str
    streamed: bool
    headers: tuple[tuple[str, str], ...]
    fields: dict[str, Any]
    leaves: float | None = None
    slow: float = 0.0
    cut: int | None = None


@define
class Setup:
    """One gateway, its upstreams' manners, and who comes when."""

    names: tuple[str, ...]
    toml: str
    channels: dict[str, str]
    model: str
    asks: list[Ask]
    scripts: dict[str, list[tuple[float, list[Step]]]]  # by channel: from when on, what it does
    refusing: list[tuple[float, str, int]]  # when, who, how many connections
    drain: float | None = None
    stop: float | None = None  # how long after it the drain is cut short
    stored: bool = False
    orders: list[tuple[float, str]] = field(factory=list)  # about the rollout, if there is one
    observing: bool = False
    resorts: set[str] = field(factory=set)  # models whose channels may be asked while their breakers are open


@define
class Grammar:
    """Draws one `Setup`."""

    rng: random.Random

    def setup(self) -> Setup:
        rng = self.rng
        names = tuple("abcd"[: rng.randint(2, 4)])
        resorts: set[str] = set()
        model = self._model(names, resorts, "m", fallback=self._some(["n", "w/x"], 0.5))
        others = self._others(names, resorts)
        stored = self._chance(0.35)
        observing = self._chance(0.1)
        toml = "\n".join(
            [*self._rollout(names), others, self._defaults(), self._classes(), self._callers(), self._extras()]
            + ["[quota]\nobserve = true\n"] * observing
        )
        return Setup(
            names,
            toml,
            {name: self._channel() for name in names},
            model,
            sorted((self._ask() for _ in range(rng.choice((5, 20, 60)))), key=lambda ask: ask.at),
            {name: self._script() for name in names},
            [(rng.uniform(0, LASTS), rng.choice(names), rng.randint(1, 20)) for _ in range(rng.choice((0, 0, 2)))],
            rng.uniform(5, LASTS + 5) if self._chance(0.4) else None,
            rng.choice((None, None, 0.0, 1.0, 4.0)),
            stored,
            [(rng.uniform(0, LASTS), rng.choice(VERBS)) for _ in range(rng.choice((0, 0, 4)))],
            observing,
            resorts,
        )

    # Configuration

    def _channel(self) -> str:
        rng = self.rng
        lines = [
            f'provider = "{rng.choice(("openai", "azure", "groq", "other", "openrouter"))}"',
            *self._some(["max_concurrency = 1", "max_concurrency = 3"], 0.3, most=1),
            *self._some(["slot_timeout = 0", "slot_timeout = 5"], 0.4, most=1),
            *self._some([f"breaker = {self._breaker()}"], 0.4),
            *self._some([f"limits = {self._limits(channel=True)}"], 0.4),
            *self._some([self._ramp()], 0.25),
        ]
        return "\n".join(lines)

    def _breaker(self) -> str:
        rng = self.rng
        preset = rng.choice(("four-layer", "consecutive", "half-open"))
        if self._chance(0.5):
            return f'"{preset}"'
        growth = rng.choice(("", ", growth = 2.0, jitter = 0.2", ", slow = 1.0, slow_minimum = 3"))
        return (
            f'{{ preset = "{preset}", failures = {rng.randint(1, 3)}, open_for = {rng.choice((2, 10, 30))}{growth} }}'
        )

    def _limits(self, *, channel: bool = False) -> str:
        rng = self.rng
        amounts = {
            "concurrency": rng.choice((1, 2, 5)),
            "requests_per_minute": rng.choice((3, 20, 100)),
            "tokens_per_minute": rng.choice((50, 2000, 100_000)),
            "input_tokens_per_minute": rng.choice((500, 20_000)),
            "output_tokens_per_minute": rng.choice((500, 20_000)),
            "requests_per_day": rng.choice((10, 1000)),
            "tokens_per_day": rng.choice((5000, 100_000)),
            "burst": rng.choice((5, 60)),
        }
        if not channel:
            amounts["stream"] = rng.choice((3, 30))
        drawn = rng.sample(sorted(amounts), rng.randint(1, 3))
        watched = (
            [f'observe = ["{rng.choice(("*", "concurrency", "requests_per_minute"))}"]'] if self._chance(0.2) else []
        )
        return "{ " + ", ".join([*(f"{name} = {amounts[name]}" for name in drawn), *watched]) + " }"

    def _ramp(self) -> str:
        rng = self.rng
        kinds = [
            "requests_per_minute = 10",
            "tokens_per_minute = 3000",
            "warmup = 30",
            "max_fallbacks = 0.1, least_calls = 3",
            "max_waiting = 2",
            "period = 20",
        ]
        return "ramp = { " + ", ".join(rng.sample(kinds, rng.randint(1, 4))) + " }"

    def _model(self, names: Sequence[str], resorts: set[str], name: str, fallback: list[str]) -> str:
        lines = [
            *self._some(['order = "listed"'], 0.3),
            *self._some([f"chain_max = {self.rng.randint(1, 4)}"], 0.5),
            *self._some(["rewrite_model = true"], 0.3),
            *self._some([f"limits = {self._limits()}"], 0.3),
            *self._some(["switch_back = { over = 30, least = 0.2 }"], 0.4),
        ]
        if self._chance(0.35):
            lines.append('when_out = "last-resort"')
            resorts.add(name)
        if fallback:
            whom = self.rng.choice(("", ', on = ["exhausted"]', ', classes = ["interactive", "batch"]'))
            lines.append("fallback = [" + ", ".join(f'{{ model = "{each}"{whom} }}' for each in fallback) + "]")
        return "\n".join(lines)

    def _others(self, names: Sequence[str], resorts: set[str]) -> str:
        rng = self.rng
        n = ", ".join(f'{{ channel = "{each}", model = "n-{each}" }}' for each in rng.sample(names, rng.randint(1, 2)))
        w = ", ".join(f'{{ channel = "{each}", model = "*" }}' for each in rng.sample(names, 2))
        return (
            f'[[models]]\nname = "n"\nchannels = [{n}]\n{self._model(names, resorts, "n", self._some(["w/x"], 0.3))}\n'
            f'[[models]]\nname = "w/*"\nchannels = [{w}]\n{self._model(names, resorts, "w/*", [])}\n'
        )

    def _rollout(self, names: Sequence[str]) -> list[str]:
        if not self._chance(0.35):
            return []
        links = ", ".join(f'{{ channel = "{each}", model = "new-{each}" }}' for each in self.rng.sample(names, 1))
        by = self.rng.choice(("session", "user", "tenant"))
        return [f'[[rollouts]]\nmodel = "m"\ncandidate = [{links}]\nhold = 20\nkey = "{by}"\nstarted = true\n']

    def _defaults(self) -> str:
        rng = self.rng
        lines = [
            "[defaults]",
            f"breaker = {self._breaker()}",
            f"headers_timeout = {rng.choice((3, 20, 240))}",
            f"gate_timeout = {rng.choice((2, 30))}",
            f"idle_timeout = {rng.choice((3, 60))}",
            f"total_timeout = {rng.choice((1300, 1500))}",
            *self._some(['on_gate_timeout = "failover"'], 0.3),
            *self._some(["switch_back = { over = 20 }"], 0.3),
        ]
        return "\n".join(lines)

    def _classes(self) -> str:
        rng = self.rng
        queues = {"agentic": "max_wait = 3\nbound = 3", "batch": "max_wait = 30\nbound = 5", "eval": "bound = 4"}
        written = []
        for name in CLASSES[:5]:
            written.append(f"[classes.{name}]")
            if name in queues and self._chance(0.6):
                written.append(f"[classes.{name}.queue]\n{queues[name]}")
            if name == "background":
                written.append('[classes.background.queue]\notherwise = "refuse"\ntokens_per_minute = 5000')
        queue = "[classes.{}.queue]\nmax_wait = 5\nbound = 3\n" if self._chance(0.4) else ""
        written.append('[classes.assured]\nmode = "assured"\n' + queue.format("assured"))
        kept = rng.choice(("0.5", "2"))
        written.append(f"[classes.kept]\nkeepalive_after = {kept}\n" + queue.format("kept"))
        written.append(f'[classes.drained]\non_disconnect = "drain"\ndrain_timeout = {rng.choice((2, 20))}')
        return "\n".join(written)

    def _callers(self) -> str:
        rng = self.rng
        parts = [f"[organization]\nlimits = {{ tokens_per_day = {MANY}, requests_per_day = {MANY} }}\n"]
        if self._chance(0.2):
            parts = [f"[organization]\nlimits = {{ concurrency = 2, tokens_per_day = {MANY} }}\n"]
        for name in TENANTS:
            limits = self._some([f"limits = {self._limits()}"], 0.3)
            lines = [
                *limits,
                *self._some([f"budget = {{ day = {rng.choice((0.0005, 0.01, 5.0))} }}"], 0.3),
                *self._some([f"balance = {rng.choice((0.0002, 0.01, 5.0))}"], 0.2),
                *self._some([f"end_user = {{ limits = {self._limits()} }}"], 0.2),
                *self._some(["weight = 3.0"], 0.3),
                *self._some(["baseline = { background = 1000 }"], 0.0 if limits else 0.4),
            ]
            parts.append(tenant("\n".join(lines), name))
            parts.append(_key(name, self._maybe(f"limits = {self._limits()}\n", 0.3)))
        return "\n".join(parts)

    def _extras(self) -> str:
        probes = f"[probes]\nevery = 20\nevery_open = 5\ncloses = {self.rng.choice(('true', 'false'))}\n"
        alerts = (
            f'[alerts]\n[alerts.thresholds]\nleast = 3\n[[alerts.sinks]]\nurl = "{HOOK}"\n'
            'secret = { env = "S" }\ntries = 2\ntimeout = 2\n'
        )
        return self._maybe(probes, 0.4) + self._maybe(alerts, 0.5)

    # Traffic

    def _ask(self) -> Ask:
        rng = self.rng
        streamed = self._chance(0.5)
        headers = [("authorization", f"Bearer sk-caller-{rng.choice(TENANTS)}")]
        headers += self._some([("x-trioproxy-class", rng.choice(CLASSES))], 0.8)
        headers += self._some([("x-trioproxy-session", f"s{rng.randint(0, 9)}")], 0.5)
        headers += self._some([("x-trioproxy-user", f"u{rng.randint(0, 3)}")], 0.3)
        headers += self._some([("x-request-timeout", rng.choice(("0.05", "1", "8")))], 0.2)
        fields: dict[str, Any] = {} if self._chance(0.6) else {"max_tokens": rng.choice((5, 400))}
        fields |= rng.choice(({}, {}, {"user": f"u{rng.randint(0, 3)}"}))
        if self._chance(0.05):
            fields |= {"max_tokens": rng.choice((0, -1, "ten"))}
        if streamed and self._chance(0.3):
            fields["stream_options"] = {"include_usage": True}
        return Ask(
            rng.choice((0.0, 1.0, rng.uniform(0, LASTS), rng.uniform(0, LASTS))),
            rng.choice(("m", "m", "m", "n", "w/x", "unknown")),
            streamed,
            tuple(headers),
            fields,
            rng.choice((None, None, None, rng.uniform(0, 0.2), rng.uniform(0, 12))),
            rng.choice((0.0, 0.0, 0.0, 2.0)),
            rng.choice((None, None, None, 0, rng.randint(1, 12), rng.randint(1, 40))),
        )

    # Upstreams

    def _script(self) -> list[tuple[float, list[Step]]]:
        """Phases: mostly well, mostly ill, or anything."""
        rng = self.rng
        starts = [0.0, *sorted(rng.uniform(5, LASTS) for _ in range(rng.randint(0, 3)))]
        return [(start, [self._step(rng.choice((0.0, 0.2, 0.9))) for _ in range(40)]) for start in starts]

    def _step(self, ill: float) -> Step:
        return self._ill() if self._chance(ill) else self._well()

    def _well(self) -> Step:
        rng = self.rng
        delay, every = rng.choice((0.0, 0.0, 0.3, 4.0)), rng.choice((0.0, 0.05, 1.0))
        words = ["x" * rng.choice((2, 2, 2, 20_000))] * rng.randint(1, 12)
        usage = rng.choice(((9, 3), (120, 40), None))
        limits = (
            ("x-ratelimit-limit-requests", "20"),
            ("x-ratelimit-remaining-requests", str(rng.choice((0, 1, 15)))),
            ("x-ratelimit-reset-requests", rng.choice(("1s", "20s"))),
        )
        whole = steps.chat_answer("".join(words), delay=delay, usage=usage, headers=rng.choice(((), (), limits)))
        stream = steps.chat_stream(words, delay=delay, every=every, usage=usage)
        return _either(whole, stream)

    def _ill(self) -> Step:
        rng = self.rng
        secret = {"error": {"message": f"Incorrect API key provided: sk-secret-{rng.choice('abcd')}", "code": "x"}}
        funds = {"error": {"message": "no funds", "type": "insufficient_quota", "code": "insufficient_quota"}}
        words = ["x"] * 5
        kinds: list[Callable[[], Step]] = [
            lambda: steps.error(rng.choice((500, 502, 503, 529))),
            lambda: steps.error(429),
            lambda: steps.error(429, headers=[("retry-after", rng.choice(("1", "7", "40", "junk")))]),
            lambda: steps.error(
                429, headers=[("x-ratelimit-limit-requests", "10"), ("x-ratelimit-remaining-requests", "0")]
            ),
            lambda: steps.error(rng.choice((401, 403)), secret),
            lambda: steps.error(rng.choice((402, 429)), funds),
            lambda: _echo,
            lambda: steps.error(404),
            lambda: steps.error(500, secret),
            steps.silence,
            lambda: steps.hang_up(rng.choice(("fin", "reset")), delay=rng.choice((0, 2))),
            lambda: steps.chat_stream(words, every=0.5, end=rng.choice(("fin", "reset", "hang"))),
            lambda: steps.chat_stream([], end=rng.choice(("fin", "hang"))),
            lambda: steps.sse([steps.delta("", role=True), steps.error_frame("no sk-secret-a")]),
            lambda: steps.sse([b": ping\n\n"] * 20, every=1.0),
            lambda: steps.sse([steps.delta("a"), b"data: {broken\n\n", steps.delta("b"), steps.delta(finish="stop")]),
            lambda: steps.raw(
                b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", end=rng.choice(("fin", "reset", "hang"))
            ),
            lambda: steps.raw(b"\x00\xff garbage"),
            lambda: steps.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", end="clean"),
            lambda: steps.after(rng.choice((6, 15)), steps.chat("late")),
        ]
        return rng.choice(kinds)()

    # Chance

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _maybe(self, text: str, share: float) -> str:
        return text if self._chance(share) else ""

    def _some(self, each: Sequence[T], share: float, *, most: int = 9) -> list[T]:
        if not self._chance(share):
            return []
        return self.rng.sample(list(each), self.rng.randint(1, min(most, len(each))))


def _either(whole: Step, stream: Step) -> Step:
    async def step(x: Exchange) -> None:
        await (stream if x.request.json.get("stream") else whole)(x)

    return step


async def _echo(x: Exchange) -> None:
    said = f"I will not say {x.request.json['messages'][0]['content']}"
    await x.reply(400, {"error": {"message": said, "type": "invalid_request_error", "code": "context_length_exceeded"}})


def _key(name: str, rest: str) -> str:
    """A caller of this tenant; its key is no name of anything."""
    digest = hashlib.sha256(f"sk-caller-{name}".encode()).hexdigest()
    return f'[[keys]]\nid = "key-{name}"\nhash = "sha256:{digest}"\ntenant = "{name}"\n{rest}'
