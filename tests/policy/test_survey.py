"""The walk: text is weighed, files are jumped over, and the work is bounded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy import pictures, samples
from trioproxy.policy.scripts import PIECE, SCALES, UNIT
from trioproxy.policy.survey import EXACT, FILE, SAMPLES, Survey, survey

O200K = SCALES["o200k"]
IMAGE = pictures.url(pictures.png(640, 480), size=6000)


def walk(value: object, exact: int = EXACT) -> tuple[bytes, Survey]:
    body = json.dumps(value, ensure_ascii=False).encode()
    return body, survey(body, (0, len(body)), O200K, exact)


@pytest.mark.parametrize("key", ["url", "image_url", "data", "file_data"])
def test_a_file_is_found_whole_and_weighs_nothing(key: str) -> None:
    body, found = walk({"text": samples.ENGLISH, key: IMAGE, "more": samples.ENGLISH})
    assert [body[start:end].decode() for start, end in found.files] == [IMAGE]
    words = walk({"text": samples.ENGLISH, key: "", "more": samples.ENGLISH})[1]
    assert found.weight == pytest.approx(words.weight, abs=2 * UNIT)


@pytest.mark.parametrize("key", ["text", "content", "arguments"])
def test_base64_that_somebody_wrote_is_text(key: str) -> None:
    _, found = walk({key: IMAGE})
    assert found.files == []
    assert found.weight / UNIT == pytest.approx(len(IMAGE) / 1.5, rel=0.1)


def test_an_image_inside_a_quoted_json_text_is_text() -> None:
    _, found = walk({"content": json.dumps({"url": IMAGE})})
    assert found.files == []


@given(st.lists(st.sampled_from(["file", "text"]), max_size=12), st.integers(0, 3000))
def test_text_and_files_share_the_body_between_them(order: list[str], exact: int) -> None:
    """Every byte is text or part of a file, whatever was weighed exactly."""
    parts = [{"url": IMAGE} if kind == "file" else {"text": samples.ENGLISH} for kind in order]
    body, found = walk(parts, exact)
    files = sum(end - start for start, end in found.files)
    assert len(found.files) <= order.count("file")
    if exact >= 3000 and len(order) <= 3:
        assert len(found.files) == order.count("file")
    # The first bytes of a file are met as text, at most two pieces of each.
    assert len(body) <= found.text + files <= len(body) + 2 * PIECE * max(1, order.count("file"))


@pytest.mark.parametrize("name", ["ENGLISH", "PYTHON", "RUSSIAN", "CHINESE"])
def test_what_is_sampled_weighs_as_if_it_had_been_read(name: str) -> None:
    body, sampled = walk([getattr(samples, name)] * 600, exact=4096)
    whole = survey(body, (0, len(body)), O200K, len(body))
    assert sampled.text == len(body)
    assert sampled.weight == pytest.approx(whole.weight, rel=0.05)


def test_a_large_file_behind_a_long_text_is_found_by_sampling() -> None:
    image = pictures.url(pictures.png(640, 480), size=400_000)
    body, found = walk([samples.ENGLISH] * 100 + [{"url": image}] + [samples.ENGLISH] * 100, exact=4096)
    assert [body[start:end].decode() for start, end in found.files] == [image]


def test_many_small_files_are_sampled_as_text_is() -> None:
    """A hostile body of nothing but small files must not cost a look at every one."""
    _, found = walk([{"url": IMAGE[:1500]}] * 5000)
    assert EXACT // FILE // 2 <= len(found.files) <= EXACT // FILE + SAMPLES


def test_solid_text_is_not_searched_again_and_again() -> None:
    """A string of base64 is looked up once: the keys before it are tried as often as there are strings."""
    text = samples.BASE64 * 200
    _, found = walk({"content": text})
    assert found.files == []
    assert found.weight / UNIT == pytest.approx(len(text) / 1.5, rel=0.05)


def test_an_empty_stretch_weighs_nothing() -> None:
    found = survey(b"[]", (1, 1), O200K)
    assert (found.weight, found.text, found.exact, found.files) == (0, 0, 0, [])
