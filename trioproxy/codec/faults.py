"""Whose fault is it? One pure classifier for every provider that speaks the OpenAI dialect, or nearly.

An error body is read into its words, its message and its status, wherever the provider put them; then the rules of
`fault_table` decide: words, phrases, status, families of words. Messages are scrubbed here, once, so that a `Fault` may
be shown as it is. A body that is the client's to see is kept as it came; the edge removes our own secrets from it.
"""

import re
from collections.abc import Iterator, Sequence

from attrs import define, field

from trioproxy.codec import fault_table as table
from trioproxy.codec import jsonread
from trioproxy.codec.fault_table import Rule
from trioproxy.codec.retry_hint import CAP, duration, retry_after
from trioproxy.codec.scrub import scrub
from trioproxy.errors import Blame, Fault

Headers = Sequence[tuple[bytes, bytes]]

_DAY = 86_400.0
_LONGEST_MESSAGE = 500  # characters: enough for any provider's sentence, too little for a page
_LARGEST_BODY = 65_536  # bytes of an error body that are looked at
# Where relays put their sentence, in the order in which it is worth looking (one-api probes the same).
_MESSAGES = ("message", "Message", "msg", "err", "error_msg", "detail")
_CODES = ("code", "statusCode", "status_code", "status")
_WORD = re.compile(r"[A-Za-z0-9_.\-]{2,80}")


@define
class Evidence:
    """What an error says, from wherever it says it."""

    message: str = ""
    code: str | None = None
    type: str | None = None
    param: str | None = None
    number: int = 0  # an HTTP status inside the body
    words: list[str] = field(factory=list)
    asked: float | None = None  # seconds, from the headers
    delay: float | None = None  # seconds, from Gemini's RetryInfo
    daily: bool = False  # a quota per day is used up
    moderated: bool = False  # OpenRouter: the client's input was flagged

    def throttled(self) -> bool:
        """DashScope's family, which comes dressed as `insufficient_quota` too."""
        return any(word.startswith("throttling") for word in self.words)


def classify(status: int, headers: Headers, body: bytes, *, wall: float, cap: float = CAP) -> Fault:
    """The fault of an HTTP answer that is an error. `wall` is Unix time; `cap` bounds what Retry-After may ask."""
    form = jsonread.form_of(body)
    try:
        value = jsonread.read(body)[0] if form == "json" and len(body) <= _LARGEST_BODY else None
    except ValueError:
        value = None
    evidence = _evidence(value)
    for name, text in headers:
        if name.lower() == b"x-amzn-errortype":
            evidence.words.append(text.decode("latin-1").partition(":")[0].strip().lower())
    if not evidence.message:
        evidence.message = _plain(body) if form == "other" else f"the provider answered {status}"
    rule = table.PAGE if form == "html" and status == 403 else _rule(evidence, status)
    evidence.asked = retry_after(headers, wall, cap=cap)
    if evidence.delay is not None:
        evidence.delay = min(evidence.delay, cap)
    kept = body if rule.blame in (Blame.CLIENT, Blame.ADAPTER) and _is_envelope(value) else b""
    return _fault(rule, evidence, status=status, wall=wall, body=kept)


def classify_error_object(error: object, *, status: int = 0, wall: float | None = None) -> Fault:
    """The fault of an error inside a stream or inside a 200.

    `error` is the decoded object that holds it, in any of the family's shapes. A `status` of 400 or more takes
    precedence over one inside it. Where `wall` is not known, what lasts until midnight is parked for an hour.
    """
    evidence = _evidence(error)
    evidence.message = evidence.message or "the provider reported an error inside its answer"
    if evidence.delay is not None:
        evidence.delay = min(evidence.delay, CAP)
    number = status if status >= 400 else evidence.number
    rule = _rule(evidence, number)
    body = b""
    if rule.blame in (Blame.CLIENT, Blame.ADAPTER) and isinstance(error, dict) and _is_envelope(error):
        body = _written({"error": error["error"]})
    return _fault(rule, evidence, status=number, wall=wall, body=body)


def _rule(evidence: Evidence, status: int) -> Rule:
    if evidence.moderated:
        return table.FILTERED
    if evidence.throttled():
        return table.RATE
    if evidence.daily:
        return table.DAY_IS_OVER
    if evidence.param == "service_tier" and status in (0, 400, 403):
        return table.FORBIDDEN
    for statuses, pattern, rule in table.PHRASES:
        if (not statuses or status in statuses) and pattern.search(evidence.message):
            return rule
    ranked = [table.WORDS[word] for word in evidence.words if word in table.WORDS]
    if ranked:
        return min(ranked, key=lambda entry: entry[0])[1]
    if status >= 400:
        return table.rule_for_status(status)
    families = [table.FAMILIES[word] for word in evidence.words if word in table.FAMILIES]
    return families[0] if families else table.SERVER


def _fault(rule: Rule, evidence: Evidence, *, status: int, wall: float | None, body: bytes) -> Fault:
    park = rule.park
    if park == table.TO_MIDNIGHT:
        park = evidence.asked or (table.HOUR if wall is None else _DAY - wall % _DAY)
    cooldown = evidence.delay if evidence.asked is None else evidence.asked
    waits = rule.blame in (Blame.RATE, Blame.PROVIDER)
    return Fault(
        kind=rule.kind,
        blame=rule.blame,
        message=scrub(evidence.message)[:_LONGEST_MESSAGE],
        status=status,
        retry=rule.retry,
        counts=rule.counts,
        cooldown=cooldown if waits else None,
        park=park,
        code=evidence.code,
        type=evidence.type,
        param=evidence.param,
        body=body,
    )


def _evidence(value: object) -> Evidence:
    if isinstance(value, list):  # Gemini wraps its error in an array
        value = next((item for item in value if isinstance(item, dict)), None)
    if not isinstance(value, dict):
        return Evidence()
    error = value.get("error")
    if isinstance(error, str):
        inner = {**value, "message": value.get("message") or error, "code": value.get("code") or error}
    elif isinstance(error, dict) and error:
        inner = error
    else:
        inner = value
    evidence = Evidence(
        message=_message(inner) or _message(value), type=_text(inner.get("type")), param=_text(inner.get("param"))
    )
    _read_codes(inner, evidence)
    evidence.words += [word for found in _words(inner) for word in _split(found)]
    _read_details(inner, evidence)
    return evidence


def _message(error: dict[str, object], depth: int = 2) -> str:
    for name in _MESSAGES:
        said = error.get(name)
        if isinstance(said, str) and said:
            return said
        if isinstance(said, list | dict) and said:
            return _written(said).decode()
    for name in ("header", "response", "error"):
        outer = error.get(name)
        if isinstance(outer, dict) and depth:
            return _message(outer, depth - 1)
    return ""


def _written(value: object) -> bytes:
    """As JSON; nothing where somebody nested it too deeply to be worth telling."""
    try:
        return jsonread.write(value)
    except ValueError:
        return b""


def _read_codes(error: dict[str, object], evidence: Evidence) -> None:
    for name in _CODES:
        code = error.get(name)
        if isinstance(code, bool) or not isinstance(code, int | str) or code == "":
            continue
        if evidence.code is None and name != "status":
            evidence.code = str(code)
        if not evidence.number:
            evidence.number = _http_status(code)
    # one-api and new-api put the status that they got into `param`.
    if evidence.code == "bad_response_status_code" and evidence.param is not None:
        evidence.number = evidence.number or _http_status(evidence.param)


def _words(error: dict[str, object]) -> Iterator[object]:
    yield from (error.get(name) for name in (*_CODES, "type", "__type"))
    yield from _fields(error.get("details"), "error_code", "reason")
    yield from _fields(error.get("metadata"), "error_type")
    yield from _fields(error.get("innererror"), "code")
    yield from _fields(error.get("errors"), "reason")
    if isinstance(error.get("error"), str):
        yield error["error"]


def _split(found: object) -> list[str]:
    text = str(found) if isinstance(found, int | str) and not isinstance(found, bool) else ""
    return [text.lower()] if _WORD.fullmatch(text) else []


def _fields(holder: object, *names: str) -> Iterator[object]:
    for entry in holder if isinstance(holder, list) else [holder]:
        if isinstance(entry, dict):
            yield from (entry.get(name) for name in names)


def _read_details(error: dict[str, object], evidence: Evidence) -> None:
    details = error.get("details")
    for entry in details if isinstance(details, list) else ():
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("retryDelay"), str):
            evidence.delay = duration(entry["retryDelay"])
        evidence.daily |= any("PerDay" in str(quota) for quota in _fields(entry.get("violations"), "quotaId"))
    metadata = error.get("metadata")
    if isinstance(metadata, dict):
        evidence.daily |= "per-day" in str(metadata.get("limit_source"))
        evidence.moderated = bool(metadata.get("reasons") or metadata.get("flagged_input"))


def _http_status(code: int | str) -> int:
    number = int(code) if isinstance(code, int) or (code.isascii() and code.isdigit() and len(code) == 3) else 0
    return number if 400 <= number <= 599 else 0


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _plain(body: bytes) -> str:
    return " ".join(body[:_LONGEST_MESSAGE].decode("utf-8", "replace").split())


def _is_envelope(value: object) -> bool:
    """Whether a body is the dialect's own error object, and so may be relayed as it came."""
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str)
