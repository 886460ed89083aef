"""Which profile a model's name stands for."""

import pytest

from trioproxy.policy.images import Capped, Patches, Tiles
from trioproxy.policy.profile import profile_of


@pytest.mark.parametrize(
    "name, vocabulary, factor",
    [
        ("gpt-4o-2024-11-20", "o200k", 1.0),
        ("gpt-4-turbo", "cl100k", 1.0),
        ("gpt-3.5-turbo", "cl100k", 1.0),
        ("openai/gpt-4.1", "o200k", 1.0),
        ("text-embedding-3-small", "cl100k", 1.0),
        ("deepseek-chat", "deepseek", 1.0),
        ("claude-3-5-sonnet-20241022", "o200k", 1.15),
        ("claude-sonnet-4-20250514", "o200k", 1.15),
        ("claude-opus-4-6", "o200k", 1.15),
        ("claude-opus-4-7", "o200k", 1.35),
        ("claude-sonnet-5", "o200k", 1.35),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "o200k", 1.15),
        ("claude-next", "o200k", 1.35),
        ("gemini-2.5-flash", "o200k", 1.05),
        ("mistral-large", "o200k", 1.1),
        ("something-else", "o200k", 1.0),
        ("", "o200k", 1.0),
    ],
)
def test_a_name_tells_vocabulary_and_factor(name: str, vocabulary: str, factor: float) -> None:
    profile = profile_of(name)
    assert (profile.vocabulary, profile.factor) == (vocabulary, factor)


@pytest.mark.parametrize(
    "name, rule",
    [
        ("gpt-4o-mini", Tiles(2833, 5667)),
        ("gpt-4o", Tiles(85, 170)),
        ("gpt-5-mini", Patches(1.62)),
        ("gpt-5.4-nano", Patches(2.46)),
        ("gpt-5-chat", Tiles(70, 140)),
        ("gpt-5.2", Patches(1.2)),
        ("claude-haiku-4-5", Capped(1568, 1568)),
    ],
)
def test_the_longer_name_wins(name: str, rule: object) -> None:
    assert profile_of(name).images == rule


def test_late_models_look_at_originals_unscaled() -> None:
    assert profile_of("gpt-5.6").images == profile_of("gpt-5.10").images == profile_of("gpt-6").images
    assert profile_of("gpt-5.5").images != profile_of("gpt-5.6").images
