"""Sizes from header bytes, and tokens by each model's published rule."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy import pictures
from trioproxy.policy.images import HEAD, Capped, Crops, Detail, Flat, Patches, Rule, Size, Tiles, size_of
from trioproxy.policy.profile import profile_of

sides = st.integers(1, 16_383)


def read(head: bytes) -> Size | None:
    text = base64.b64encode(head + bytes(60))
    return size_of(b'"' + text + b'"', (1, len(text) + 1))


@given(sides, sides)
def test_every_format_tells_its_size(width: int, height: int) -> None:
    makers = (
        pictures.png,
        pictures.gif,
        pictures.jpeg,
        pictures.webp_lossy,
        pictures.webp_lossless,
        pictures.webp_extended,
    )
    assert [read(make(width, height)) for make in makers] == [(width, height)] * 6


@given(sides, sides, st.integers(0, 90_000), st.sampled_from([0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCF]))
def test_a_jpegs_size_is_found_behind_thumbnails_and_profiles(width: int, height: int, before: int, frame: int) -> None:
    assert read(pictures.jpeg(width, height, before=before, frame=frame)) == (width, height)


def test_a_jpeg_whose_header_is_too_far_in_has_no_size() -> None:
    assert read(pictures.jpeg(640, 480, before=HEAD)) is None


def test_a_jpeg_of_endless_segments_is_given_up() -> None:
    segment = b"\xff\xe0\x00\x04ab"
    assert read(b"\xff\xd8" + segment * 28 + pictures.jpeg(640, 480)[2:]) == (640, 480)
    assert read(b"\xff\xd8" + segment * 32 + pictures.jpeg(640, 480)[2:]) is None


def test_a_webp_of_an_unknown_form_has_no_size() -> None:
    assert read(pictures.webp_lossy(640, 480).replace(b"VP8 ", b"VP9 ")) is None
    assert read(pictures.webp_lossy(640, 480).replace(b"\x9d\x01\x2a", b"\0\0\0")) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(noise: bytes) -> None:
    for body in (
        noise,
        base64.b64encode(noise),
        base64.b64encode(b"\xff\xd8" + noise),
        base64.b64encode(b"RIFF" + noise),
    ):
        found = size_of(body, (0, len(body)))
        assert found is None or min(found) > 0


@pytest.mark.parametrize(
    "head", [b"", b"BM......", pictures.png(0, 5), pictures.png(70_000, 5), pictures.png(3, 3)[:20]]
)
def test_what_is_no_image_of_a_possible_size_has_none(head: bytes) -> None:
    text = base64.b64encode(head)
    assert size_of(text, (0, len(text))) is None


def test_the_scheme_of_a_data_url_is_passed_over_and_escaped_slashes_are_read() -> None:
    """Some writers escape every slash; they would shift what stands behind them."""
    address = pictures.url(pictures.jpeg(1920, 1080, before=500), "jpeg").replace("/", "\\/").encode()
    assert size_of(address, (0, len(address))) == (1920, 1080)


@pytest.mark.parametrize(
    "model, size, detail, tokens",
    [
        # gpt-4o: fitted to 2048², shortest side 768, tiles of 512
        ("gpt-4o", (1024, 1024), "high", 85 + 4 * 170),
        ("gpt-4o", (2048, 4096), "high", 85 + 6 * 170),
        ("gpt-4o", (4096, 8192), "low", 85),
        ("gpt-4o", (512, 512), "auto", 85 + 170),
        ("gpt-4o-mini", (512, 512), "auto", 2833 + 5667),
        ("gpt-5", (1024, 1024), "auto", 70 + 4 * 140),
        ("o3", (1024, 1024), "auto", 75 + 4 * 150),
        ("computer-use-preview", (1024, 1024), "auto", 65 + 4 * 129),
        # gpt-6, published measurements
        ("gpt-6", (256, 256), "auto", 77),
        ("gpt-6", (512, 512), "auto", 308),
        ("gpt-6", (1024, 1024), "auto", 1229),
        ("gpt-6", (1920, 1080), "auto", 2448),
        ("gpt-6", (4032, 3024), "auto", 14_364),
        # Claude: 28-pixel patches after fitting
        ("claude-sonnet-4-5", (280, 280), "auto", 100),
        ("claude-sonnet-4-5", (8000, 8000), "auto", 1568),
        ("claude-opus-4-7", (8000, 8000), "auto", 4784),
        ("claude-opus-4-7", (2576, 1000), "auto", 92 * 36),
        ("gemini-2.5-pro", (384, 384), "auto", 258),
        ("gemini-2.5-pro", (1024, 700), "auto", 2 * 258),
        ("gemini-3-pro", (4000, 4000), "auto", 1101),
    ],
)
def test_an_image_costs_what_its_models_rule_says(model: str, size: Size, detail: Detail, tokens: int) -> None:
    assert profile_of(model).images.tokens(size, detail) == tokens


@pytest.mark.parametrize(
    "rule, tokens",
    [
        (Tiles(85, 170), 1105),
        (Patches(1.0), 1100),
        (Patches(1.62), 1659),
        (Capped(1568, 1568), 1568),
        (Capped(2576, 4784), 4784),
        (Flat(1101), 1101),
        (Crops(258), 1032),
    ],
)
def test_an_image_of_unknown_size_costs_a_generous_guess(rule: Rule, tokens: int) -> None:
    assert rule.tokens(None, "auto") == tokens


@given(sides, sides)
def test_patches_never_exceed_the_budget_and_lose_little_to_it(width: int, height: int) -> None:
    tokens = Patches(1.0).tokens((width, height), "high")
    assert 1 <= tokens <= 1536
    shape = max(width, height) / min(width, height)
    assert tokens >= 1250 or shape > 2 or width * height < 2048 * 1024


def test_a_large_original_costs_more_than_its_high_detail() -> None:
    rule = profile_of("gpt-5.4").images
    assert rule.tokens((6000, 6000), "high") == rule.tokens((6000, 6000), "auto") <= 3000
    assert 10_000 < rule.tokens((6000, 6000), "original") <= 12_000
