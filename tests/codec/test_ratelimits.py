"""Rate-limit headers: every family as it writes them, most restrictive of duplicates, nonsense passed over; and ours."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.codec.ratelimits import (
    Allowance,
    Observation,
    go_duration,
    ietf_headers,
    observations,
    openai_headers,
    reset_after,
)
from trioproxy.codec.retry_hint import duration

WALL = 1_795_000_000.0  # 2026-11-18T11:06:40Z
NAMES = ("x-ratelimit-limit-requests", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens")


def read(family: str, **headers: str) -> dict[tuple[str, str], Observation]:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {(one.dimension, one.scope): one for one in observations(family, lines, WALL)}


def test_openai_tells_requests_tokens_and_the_projects_own_tokens() -> None:
    found = read(
        "openai",
        x_ratelimit_limit_requests="500",
        x_ratelimit_remaining_requests="499",
        x_ratelimit_reset_requests="1500ms",
        X_RateLimit_Limit_Tokens="200000",
        x_ratelimit_remaining_tokens="150000",
        x_ratelimit_reset_tokens="6m0s",
        x_ratelimit_limit_project_tokens="50000",
        x_ratelimit_remaining_project_tokens="10",
    )
    assert found == {
        ("requests_per_minute", ""): Observation("requests_per_minute", 500, 499, 1.5),
        ("tokens_per_minute", ""): Observation("tokens_per_minute", 200_000, 150_000, 360.0),
        ("tokens_per_minute", "project"): Observation("tokens_per_minute", 50_000, 10, None, "project"),
    }


def test_groqs_requests_are_per_day() -> None:
    found = read(
        "groq",
        x_ratelimit_limit_requests="14400",
        x_ratelimit_reset_requests="2m59.56s",
        x_ratelimit_limit_tokens="6000",
    )
    assert found["requests_per_day", ""] == Observation("requests_per_day", 14_400, None, 179.56)
    assert found["tokens_per_minute", ""].limit == 6000


def test_anthropic_tells_input_and_output_apart_and_priority_too() -> None:
    found = read(
        "anthropic",
        anthropic_ratelimit_input_tokens_limit="80000",
        anthropic_ratelimit_input_tokens_remaining="79000",
        anthropic_ratelimit_input_tokens_reset="2026-11-18T11:07:40Z",
        anthropic_ratelimit_output_tokens_remaining="16000",
        anthropic_ratelimit_requests_limit="50",
        anthropic_ratelimit_tokens_limit="96000",
        anthropic_priority_input_tokens_limit="10000",
    )
    assert found["input_tokens_per_minute", ""] == Observation("input_tokens_per_minute", 80_000, 79_000, 60.0)
    assert found["output_tokens_per_minute", ""].remaining == 16_000
    assert found["requests_per_minute", ""].limit == 50
    assert found["tokens_per_minute", ""].limit == 96_000
    assert found["input_tokens_per_minute", "priority"].limit == 10_000


def test_azure_tells_the_utilisation_of_provisioned_throughput() -> None:
    found = read("azure", azure_openai_deployment_utilization="57.2%", x_ratelimit_remaining_requests="9")
    assert found["capacity_percent", ""] == Observation("capacity_percent", 100, 42)
    assert found["requests_per_minute", ""].remaining == 9
    assert read("azure", azure_openai_deployment_utilization="130%")["capacity_percent", ""].remaining == 0


def test_cerebras_and_mistral_have_names_of_their_own() -> None:
    cerebras = read("cerebras", x_ratelimit_limit_requests_day="14400", x_ratelimit_reset_tokens_minute="33.01")
    assert cerebras["requests_per_day", ""].limit == 14_400
    assert cerebras["tokens_per_minute", ""].reset_after == pytest.approx(33.01)
    mistral = read(
        "mistral",
        x_ratelimit_limit_req_minute="60",
        x_ratelimit_remaining_tokens_minute="499",
        x_ratelimit_tokens_query_cost="7",
    )
    assert mistral == {
        ("requests_per_minute", ""): Observation("requests_per_minute", 60),
        ("tokens_per_minute", ""): Observation("tokens_per_minute", None, 499),
    }


def test_openrouters_reset_is_unix_milliseconds() -> None:
    found = read(
        "openrouter", X_RateLimit_Limit="20", X_RateLimit_Remaining="0", X_RateLimit_Reset=str(int(WALL * 1000) + 2500)
    )
    assert found == {("requests_per_minute", ""): Observation("requests_per_minute", 20, 0, 2.5)}


def test_an_unknown_family_is_read_as_openais() -> None:
    assert read("somebody", x_ratelimit_limit_requests="5")["requests_per_minute", ""].limit == 5


@pytest.mark.parametrize("family", ["gemini", "deepseek"])
def test_who_sends_no_headers_is_not_believed_any(family: str) -> None:
    assert read(family, x_ratelimit_limit_requests="5") == {}


@pytest.mark.parametrize("joined", [False, True], ids=["twice", "joined"])
def test_of_duplicates_the_most_restrictive_counts(joined: bool) -> None:
    values = {"limit": ("100", "60", "80"), "remaining": ("3", "50", "7"), "reset": ("1s", "750ms", "2s")}
    lines: list[tuple[bytes, bytes]] = []
    for kind, several in values.items():
        name = f"x-ratelimit-{kind}-requests".encode()
        lines += [(name, ", ".join(several).encode())] if joined else [(name, value.encode()) for value in several]
    assert observations("openai", lines, WALL) == [Observation("requests_per_minute", 60, 3, 2.0)]


@pytest.mark.parametrize(
    "value", ["-1", "NaN", "nan", "inf", "-Infinity", "", " ", "unlimited", "1e400", "0x10", "9" * 40, "٣", "1_000"]
)
def test_what_is_no_possible_number_is_passed_over(value: str) -> None:
    lines = [(name.encode(), value.encode()) for name in NAMES]
    assert observations("openai", lines, WALL) == []
    assert observations("openai", [*lines, (NAMES[0].encode(), b"7")], WALL) == [Observation("requests_per_minute", 7)]


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("750ms", 0.75),
        ("1m2.5s", 62.5),
        ("2h3m", 7380.0),
        ("1d", 86_400.0),
        ("40d", 86_400.0),
        ("33.01", 33.01),
        ("0", 0.0),
        ("90000", 86_400.0),
        (str(WALL + 30), 30.0),
        (str(int(WALL * 1000) + 30_000), 30.0),
        (str(WALL - 30), 0.0),
        ("2026-11-18T11:07:10Z", 30.0),
        ("2026-11-18T12:07:10.5+01:00", 30.5),
        ("2026-11-18T11:00:00Z", 0.0),
        ("2030-01-01T00:00:00Z", 86_400.0),
        (" 5s ", 5.0),
    ],
)
def test_a_reset_is_seconds_from_now_however_it_is_written(text: str, seconds: float) -> None:
    assert reset_after(text, WALL) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-5", "-5s", "+5s", "NaN", "inf", "5 s", "1x", "2026-11-18T11:07:10", "2026-13-01T00:00:00Z", "s"],
)
def test_an_unreadable_reset_is_none(text: str) -> None:
    assert reset_after(text, WALL) is None


@given(
    st.lists(st.tuples(st.sampled_from([*NAMES, "x-ratelimit-reset-requests"]).map(str.encode), st.binary(max_size=30)))
)
def test_no_header_raises_and_nothing_impossible_comes_out(lines: list[tuple[bytes, bytes]]) -> None:
    for one in observations("openai", lines, WALL):
        assert one.limit is None or one.limit >= 0
        assert one.remaining is None or one.remaining >= 0
        assert one.reset_after is None or 0 <= one.reset_after <= 86_400


REQUESTS = Allowance("rpm", limit=600, remaining=583, reset_after=1.7, more_after=0.1)
TOKENS = Allowance("tpm", limit=200_000, remaining=15_000, reset_after=55.5, more_after=2.2, unit="tokens")


def test_our_limits_go_out_under_openais_names() -> None:
    assert openai_headers(REQUESTS, TOKENS) == [
        (b"x-ratelimit-limit-requests", b"600"),
        (b"x-ratelimit-remaining-requests", b"583"),
        (b"x-ratelimit-reset-requests", b"1.7s"),
        (b"x-ratelimit-limit-tokens", b"200000"),
        (b"x-ratelimit-remaining-tokens", b"15000"),
        (b"x-ratelimit-reset-tokens", b"55.5s"),
    ]
    assert openai_headers(None, None) == []


def test_our_limits_go_out_as_structured_fields() -> None:
    assert ietf_headers([REQUESTS, TOKENS]) == [
        (b"ratelimit-policy", b'"rpm";q=600;w=60, "tpm";q=200000;qu="tokens";w=60'),
        (b"ratelimit", b'"rpm";r=583;t=1, "tpm";r=15000;t=3'),
    ]
    assert ietf_headers([]) == []


def test_debt_is_shown_as_nothing_remaining() -> None:
    debt = Allowance("rpm", limit=60, remaining=-20, reset_after=float("inf"), more_after=float("inf"))
    assert dict(openai_headers(debt, None))[b"x-ratelimit-remaining-requests"] == b"0"
    assert dict(ietf_headers([debt]))[b"ratelimit"] == b'"rpm";r=0;t=86400'


def test_a_name_cannot_break_out_of_its_string() -> None:
    odd = Allowance('a"b\\c\r\nÜ', limit=1, remaining=1, reset_after=0, more_after=0)
    assert dict(ietf_headers([odd]))[b"ratelimit"] == b'"a\\"b\\\\c???";r=1;t=0'


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0s"),
        (-3, "0s"),
        (0.0001, "1ms"),
        (0.75, "750ms"),
        (1, "1s"),
        (62.5, "1m2.5s"),
        (360, "6m0s"),
        (7205, "2h0m5s"),
        (1e9, "24h0m0s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


@given(st.floats(0, 86_400))
def test_what_we_write_reads_back_never_too_early(seconds: float) -> None:
    text = go_duration(seconds)
    again = duration(text)
    assert again is not None
    assert seconds - 1e-6 <= again <= seconds + 0.001 + 1e-6
    assert re.fullmatch(r"(\d+h)?(\d+m)?(\d+(\.\d+)?s)|\d+ms", text)


def test_what_we_send_our_own_reader_understands() -> None:
    """A gateway behind a gateway."""
    assert observations("openai", openai_headers(REQUESTS, TOKENS), WALL) == [
        Observation("requests_per_minute", 600, 583, 1.7),
        Observation("tokens_per_minute", 200_000, 15_000, 55.5),
    ]
