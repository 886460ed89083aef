"""A forecast is measured input, and as much output as the request allows."""

import json

import pytest

from trioproxy.codec.chat_facts import facts_of
from trioproxy.journal import Usage
from trioproxy.policy.forecast import forecast
from trioproxy.policy.pricing import Tariff


def ahead(**fields: object) -> Usage:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "one two three"}], **fields}).encode()
    return forecast(body, facts_of(body), "gpt-4o", 500)


@pytest.mark.parametrize(
    ("fields", "output"),
    [({}, 500), ({"max_tokens": 7}, 7), ({"max_completion_tokens": 9}, 9), ({"max_tokens": 7, "n": 3}, 21)],
)
def test_output_is_the_cap_of_every_choice_or_what_is_usual(fields: dict[str, object], output: int) -> None:
    assert ahead(**fields).output == output


def test_input_grows_with_what_is_sent_and_with_tools() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    plain = ahead()
    assert 5 <= plain.input <= 20
    assert ahead(tools=[tool]).input > plain.input
    assert plain.estimated


def test_its_cost_is_the_tariff_s_to_the_micro_dollar() -> None:
    usage = ahead(max_tokens=1000)
    assert Tariff(0.15, 0.15, 0.6).cost(usage) == (usage.input * 15 + 60_000 + 50) // 100
