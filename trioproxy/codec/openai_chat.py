"""The OpenAI chat dialect: the verbs of `frame.Dialect`, each a few lines over the module that does it."""

from collections.abc import Sequence

from attrs import evolve, frozen

from trioproxy.codec import jsonread, sse
from trioproxy.codec.chat_answer import usual
from trioproxy.codec.chat_chunk import error_in, judge, refuses
from trioproxy.codec.chat_degraded import spoken, unstreamed
from trioproxy.codec.chat_facts import facts_of
from trioproxy.codec.chat_relabel import answer_from_frames, stream_from_answer
from trioproxy.codec.chat_request import request_for
from trioproxy.codec.chat_stream import ChatStream, with_model
from trioproxy.codec.faults import classify, classify_error_object
from trioproxy.codec.frame import Facts, Shape
from trioproxy.codec.problem import Problem, error_frame, render
from trioproxy.codec.retry_hint import retry_after
from trioproxy.codec.usage import usage_of
from trioproxy.errors import Blame, Fault, FaultKind
from trioproxy.journal import Usage


@frozen
class OpenAIChat:
    """Stateless; `CHAT` is the one instance a process needs."""

    name: str = "openai"

    def facts(self, body: bytes) -> Facts:
        """What the request says. Raises `Refusal`."""
        return facts_of(body)

    def request(self, body: bytes, facts: Facts, shape: Shape, model: str) -> bytes:
        """The body for one channel. Raises `Refusal`."""
        return request_for(body, facts, shape, model)

    def reader(
        self, *, drop_usage: bool, choices: int, rewrite_model: str | None, secrets: tuple[str, ...] = ()
    ) -> ChatStream:
        """A reader for one upstream stream. `secrets` may not appear in what it says of a failure."""
        return ChatStream(drop_usage=drop_usage, choices=choices, rewrite_model=rewrite_model, secrets=secrets)

    def read_answer(self, body: bytes, status: int, wall: float) -> tuple[Fault | None, Usage | None]:
        """Judge a whole 2xx answer and read its usage, in one decoding."""
        return read_answer(status, body, wall=wall)

    def refused(self, body: bytes) -> bool:
        """Whether a whole good answer is that there is none: a filter's finish, or a message that refuses."""
        return refuses(body)

    def dressed(self, body: bytes, rewrite_model: str | None) -> bytes:
        """A whole answer as the client may have it: strict JSON, and with another `model` where that is asked for."""
        body = jsonread.tidy(body)
        return body if rewrite_model is None else with_model(body, rewrite_model)

    def answer_from_stream(self, body: bytes) -> bytes | None:
        """One answer from a whole stream, where one was asked for; None if it is no complete answer."""
        return answer_from_frames(body)

    def stream_from_answer(self, body: bytes, wants_usage: bool) -> bytes | None:
        """A stream from one whole answer, where a stream was asked for; None if it is no answer."""
        return stream_from_answer(body, wants_usage)

    def spoken(self, text: str, model: str, facts: Facts, *, request_id: str, created: int) -> bytes:
        """A text in the model's place, in the form that was asked for."""
        return spoken(text, model, facts, request_id=request_id, created=created)

    def unstreamed(self, body: bytes, facts: Facts) -> bytes:
        """The same request for one whole answer."""
        return unstreamed(body, facts)

    def render_error(self, problem: Problem, request_id: str) -> bytes:
        """The body of an error answer."""
        return render(problem, request_id)

    def error_frame(self, problem: Problem) -> bytes:
        """An error inside a stream that has begun."""
        return error_frame(problem)

    def fault_of(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes, wall: float) -> Fault | None:
        """Why this answer is none; None when it is one. `wall` is Unix time."""
        if not 200 <= status < 300:
            return classify(status, headers, body, wall=wall)
        fault = judge_answer(status, body, wall=wall)
        hint = retry_after(headers, wall) if fault is not None and fault.blame in (Blame.RATE, Blame.PROVIDER) else None
        return fault if fault is None or hint is None else evolve(fault, cooldown=hint)


CHAT = OpenAIChat()


def judge_answer(status: int, body: bytes, *, wall: float) -> Fault | None:
    """Judge a whole 2xx body: None if it has choices that can be used, and no error anywhere."""
    return read_answer(status, body, wall=wall)[0]


def read_answer(status: int, body: bytes, *, wall: float) -> tuple[Fault | None, Usage | None]:
    """As `judge_answer`, and the usage that the body reports."""
    usage = usual(body)
    if usage is not None:
        return None, usage
    form = jsonread.form_of(body)
    if form == "empty":
        return _no_answer(FaultKind.EMPTY, status, "the provider answered with an empty body"), None
    try:
        answer = jsonread.read(body)[0] if form == "json" else None
    except ValueError:
        unreadable = _no_answer(FaultKind.NOT_AN_ANSWER, status, "the provider answered with unreadable JSON")
        return _error_in_stream(body) or unreadable, None
    if form == "sse" and (said := _error_in_stream(body)) is not None:
        return said, None
    if answer is None:
        what = {"html": "an HTML page", "sse": "an event stream"}.get(form, "something else")
        message = f"the provider answered with {what} where JSON was expected"
        return _no_answer(FaultKind.NOT_AN_ANSWER, status, message), None
    fault = _fault_in(answer, status, wall)
    if fault is None and not jsonread.is_text(body):
        fault = _no_answer(FaultKind.NOT_AN_ANSWER, status, "the provider answered with JSON that is not UTF-8")
    return fault, usage_of(answer)


def _fault_in(answer: object, status: int, wall: float) -> Fault | None:
    error = error_in(answer)
    if error is not None:
        return classify_error_object(error, wall=wall)
    if not isinstance(answer, dict) or "choices" not in answer:
        return _no_answer(FaultKind.NOT_AN_ANSWER, status, "the provider's answer has no choices")
    choices = answer["choices"]
    if not isinstance(choices, list) or not any(map(_usable, choices)):
        return _no_answer(FaultKind.EMPTY, status, "the provider's answer has no usable choice")
    return None


def _error_in_stream(body: bytes) -> Fault | None:
    """The error that a stream told, where one answer was asked for: it says more than that the form is wrong."""
    return next((fault for event in sse.events(body) if (fault := judge(event).fault) is not None), None)


def _usable(choice: object) -> bool:
    return isinstance(choice, dict) and (isinstance(choice.get("message"), dict) or isinstance(choice.get("text"), str))


def _no_answer(kind: FaultKind, status: int, message: str) -> Fault:
    return Fault(kind, Blame.PROVIDER, message, status=status, retry=True, counts=True)
