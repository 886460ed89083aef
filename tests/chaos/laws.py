"""What holds whatever happened. Each law looks at finished lives and says every way in which it was broken."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.chaos.grammar import WORD
from tests.chaos.life import MEND, Life, Lives, Told
from trioproxy.journal import BreakerMoved, ChannelParked, EndReason, ExchangeEnded
from trioproxy.policy.limits import Dimension
from trioproxy.policy.reservation import Rank

STATUSES = {200, 400, 402, 404, 408, 413, 429, 499, 500, 502, 503, 504, 529}
DECISIONS = {"rejected_before_dispatch", "admitted_then_provider_rejected"}
FAILED = {200, 402, 429, 500, 502, 503, 504, 529}  # 200: keep-alives had gone out
REASONS = {
    EndReason.ANSWERED: {200},
    EndReason.REFUSED_AUTH: {401, 403},
    EndReason.REFUSED_REQUEST: {400, 404},
    EndReason.REFUSED_QUOTA: {200, 402, 429},
    EndReason.REJECTED_UPSTREAM: {200, 400, 404, 413, 422},
    EndReason.CHAIN_EXHAUSTED: FAILED | {404},
    EndReason.DEADLINE: {200, 504, 408},
    EndReason.CUT_AFTER_COMMIT: {200},
    EndReason.CLIENT_LEFT: set(),
    EndReason.DRAINED: {200, 503},
    EndReason.BUG: set(),
}
LEAKS = (b"sk-secret-", b"sk-caller-", b"T0KEN", b"whsec_")


def broken(lives: Lives) -> list[str]:
    """Everything that is wrong; empty where all is well."""
    parked = any(
        event.seconds > MEND for life in lives.lives for event in life.s.events if isinstance(event, ChannelParked)
    )
    wrong = [f"life {life.number}: {said}" for life in lives.lives for law in LAWS for said in law(life)]
    if lives.setup.stored:
        wrong += _ledger(lives, lives.folder / "ledger.db")
    wrong += _counted(lives)
    if not parked:
        wrong += [f"life {life.number}: {said}" for life in lives.lives for said in _mended(life)]
    return wrong


def _answers(life: Life) -> Iterator[str]:
    """Every caller that stayed has one whole answer, and is told the truth about it."""
    for told in life.answers:
        late = life.drained is not None and told.at >= life.drained
        if told.left or (late and not told.status):
            continue
        if life.drained is not None and life.setup.stop is not None and not told.status:
            continue  # stopped
        if told.status not in STATUSES:
            yield f"{told.id} got status {told.status}"
        elif not told.whole and not ((told.ask.slow or life.setup.stop is not None) and life.drained is not None):
            yield f"{told.id} got an answer that was cut: {told.status} {told.body[-200:]!r}"
        elif told.status == 200 and told.ask.streamed and told.whole and not _ends(told):
            yield f"{told.id} got a stream without an end: {told.body[-300:]!r}"
        elif told.status == 200 and not told.ask.streamed and not json.loads(told.body).get("choices"):
            yield f"{told.id} got nothing: {told.body[-300:]!r}"
        elif told.status != 200 and "error" not in json.loads(told.body):
            yield f"{told.id} was not told why: {told.body[:300]!r}"


def _schema(told: Told) -> bool:
    """The one schema of every refusal, and a header that agrees with it."""
    if b": keepalive" in told.body or told.body.startswith((b":", b"data:")):
        return True
    error = json.loads(told.body)["error"]
    wait, header = error["retry_after_ms"], told.headers.get("retry-after")
    agreed = (
        header is None
        if wait is None
        else header is not None and int(header) >= 1 and abs(int(header) * 1000 - wait) <= 1000
    )
    return agreed and error["gateway_decision"] in DECISIONS and error["limiter"] and error["trace_id"]


def _ends(told: Told) -> bool:
    said = told.body.rstrip()
    return (said.endswith(b"data: [DONE]") and said.count(b"[DONE]") == 1) or b'"error"' in said.rsplit(b"\n\n", 1)[-1]


def _ended(life: Life) -> Iterator[str]:
    """One record per exchange, no bug among them, and it agrees with what the caller saw."""
    ended = [event for event in life.s.events if isinstance(event, ExchangeEnded)]
    count = Counter(event.request_id for event in ended)
    by_id = {event.request_id: event for event in ended}
    for told in life.answers:
        late = life.drained is not None and told.at >= life.drained
        allowed = {0, 1} if told.left or late else {1}
        if count[told.id] not in allowed:
            yield f"{told.id} has {count[told.id]} records (status {told.status}, left {told.left})"
        elif told.whole and count[told.id] and by_id[told.id].status != told.status:
            yield f"{told.id} was answered {told.status}, and recorded as {by_id[told.id].status}"
        elif told.whole and count[told.id] and told.status not in REASONS[by_id[told.id].reason]:
            yield f"{told.id} was answered {told.status} because of {by_id[told.id].reason}"
        elif told.status in {402, 429} and by_id[told.id].reason is EndReason.REFUSED_QUOTA and not _schema(told):
            yield f"{told.id} was not told which limit: {told.body!r} {told.headers}"
        elif told.status and told.whole and told.headers.get("x-trioproxy-channel") and by_id[told.id].attempts:
            channel = by_id[told.id].attempts[-1].channel
            if told.headers["x-trioproxy-channel"] != channel:
                yield f"{told.id}: {told.headers['x-trioproxy-channel']} is named, and {channel} answered"
    for event in ended:
        if event.reason is EndReason.BUG:
            yield f"a bug ended {event.request_id}"
        if event.duration < 0 or event.overhead < -1e-9 or event.queued < 0 or event.overhead > event.duration + 1e-6:
            yield f"{event.request_id}: times that cannot be: {event.duration} {event.overhead} {event.queued}"


def _held(life: Life) -> Iterator[str]:
    """At rest nothing is held: not by calls, not by the pool, not of the pace."""
    for when in ("held", "mended"):
        if life.laid[when]:
            yield f"held at rest ({when}): {life.laid[when]}"
    for name, count in life.laid["open"].items():
        if count > 0:
            yield f"{count} connections to {name} are open and not in the pool"


def _bugs(life: Life) -> Iterator[str]:
    """No subscriber of the journal raises."""
    for fault in life.faults:
        yield f"a subscriber broke: {fault!r}"
    for bug in life.s.bugs:
        yield f"a bug at the door: {bug!r}"


def _leaks(life: Life) -> Iterator[str]:
    """No secret anywhere, and no prompt where operators look."""
    log = life.log.getvalue()
    posted = b"\n".join(request.body for request in life.hook.requests)
    answers = b"\n".join(b"%b %b" % (told.body, repr(told.headers).encode()) for told in life.answers)
    for leak in LEAKS:
        for where, text in (("log", log), ("alerts", posted), ("answers", answers)):
            if leak in text:
                at = text.index(leak)
                yield f"{leak!r} in the {where}: {text[max(0, at - 200) : at + 60]!r}"
    for where, text in (("log", log), ("alerts", posted)):
        if WORD.encode() in text:
            at = text.index(WORD.encode())
            yield f"the prompt is in the {where}: {text[max(0, at - 300) : at + 60]!r}"
    for line in log.splitlines():
        if json.loads(line)["event"] == "bug":
            yield f"a bug in the log: {line!r}"


def _breakers(life: Life) -> Iterator[str]:
    """A channel is left alone while its breaker is open, but for health checks and a last resort."""
    if life.setup.resorts:
        return
    moves: dict[str, list[BreakerMoved]] = {}
    asked: dict[str, list[tuple[float, float]]] = {}
    for event in life.s.events:
        if isinstance(event, BreakerMoved):
            moves.setdefault(event.channel, []).append(event)
        elif isinstance(event, ExchangeEnded):
            for each in event.attempts:
                asked.setdefault(each.channel, []).append((each.started, each.started + each.duration))
    for name, upstream in life.s.upstreams.items():
        for request in upstream.requests:
            if b'"content":"hi"' in request.body:
                continue
            before = [move for move in moves.get(name, ()) if move.now < request.arrived]
            at_once = [move for move in moves.get(name, ()) if move.now == request.arrived]
            if before and before[-1].state == "open" and not at_once:
                if any(began < before[-1].now and request.arrived <= ended for began, ended in asked.get(name, ())):
                    continue  # a connection that was stale was replaced by another one, within one attempt
                yield f"{name} was asked at {request.arrived} though its breaker is open since {before[-1].now}"


def _crowds(life: Life) -> Iterator[str]:
    """No channel has more calls at once than its own bounds allow."""
    for name, bound in life.bounds.items():
        edges = [edge for began, ended in life.busy.get(name, ()) for edge in ((began, 1), (ended, -1))]
        now = most = 0
        for _, step in sorted(edges):  # who ends comes before who begins
            now += step
            most = max(most, now)
        if most > bound:
            yield f"{name} had {most} calls at once, of {bound}"


def _counted(lives: Lives) -> Iterator[str]:
    """What every day and balance has counted is what its calls have used, over all lives that remember each other."""
    ended = [event for life in lives.lives for event in life.s.events if isinstance(event, ExchangeEnded)]
    answered = [event for event in ended if event.attempts and event.attempts[-1].first_content is not None]
    for gauge in lives.lives[-1].laid["limits"]:
        own = _OWN.get(gauge.scope.rank)
        figure = _FIGURES.get(gauge.dimension)
        if own is None or figure is None or gauge.observe or lives.setup.observing:
            continue
        used = sum(figure(event) for event in answered if own(event) == gauge.scope.name)
        if gauge.remaining != gauge.limit - used and (gauge.remaining > 0 or used < gauge.limit):
            yield f"{gauge} has counted {gauge.limit - gauge.remaining}, and its calls have used {used}"


def _tokens(event: ExchangeEnded) -> int:
    return event.usage.input + event.usage.cached + event.usage.output


_OWN: dict[Rank, Callable[[ExchangeEnded], str]] = {
    Rank.ORGANIZATION: lambda _: "",
    Rank.TENANT: lambda event: event.tenant,
    Rank.KEY: lambda event: event.key_id,
    Rank.END_USER: lambda event: f"{event.tenant} / {event.user}",
    Rank.MODEL: lambda event: (event.fallback or event.model).replace("w/x", "w/*"),
}
_FIGURES: dict[Dimension, Callable[[ExchangeEnded], int]] = {
    Dimension.TOKENS_PER_DAY: _tokens,
    Dimension.REQUESTS_PER_DAY: lambda _: 1,
    Dimension.BALANCE: lambda event: event.cost or 0,
    Dimension.MICRO_USD_PER_DAY: lambda event: event.cost or 0,
}


def _ledger(lives: Lives, path: Path) -> Iterator[str]:
    """Every exchange that asked somebody is in the ledger once, with the same figures."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT request_id, reason, input + cached + output, cost FROM calls").fetchall()
    finally:
        connection.close()
    events = [event for life in lives.lives for event in life.s.events if isinstance(event, ExchangeEnded)]
    told = Counter(
        (each.request_id, each.reason.value, each.usage.input + each.usage.cached + each.usage.output, each.cost)
        for each in events
    )
    kept = Counter(rows)
    if told != kept:
        yield f"the ledger lacks {dict(told - kept)}, and has {dict(kept - told)} that was not told"


def _mended(life: Life) -> Iterator[str]:
    """Long after everybody is well again, a call is answered, or a limit of ours says no."""
    for told in life.mended:
        timed = any(name == "x-request-timeout" for name, _ in told.ask.headers)
        if told.left or timed or told.ask.model == "unknown" or "max_tokens" in told.ask.fields:
            continue
        if told.status == 200 or told.status in {402, 429}:
            continue
        yield f"{told.id} was told {told.status} after all was well: {told.body[:300]!r}"


LAWS = (_answers, _ended, _held, _bugs, _leaks, _breakers, _crowds)
