"""Single values: what each may be, with an offer for what it may not."""

from urllib.parse import urlsplit

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from trioproxy.config.model import Channel, Key, Link, Listen, Model, Secret
from trioproxy.config.rules import Address, is_loopback, moment, shown

HASH = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "text, address, loopback",
    [
        ("127.0.0.1:8787", Address("127.0.0.1", 8787), True),
        ("localhost:0", Address("localhost", 0), True),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535), False),
        ("[::1]:80", Address("::1", 80), True),
        ("[::]:80", Address("::", 80), False),
        ("gw.internal:80", Address("gw.internal", 80), False),
        ("unix:/run/gw.sock", Address("", 0, "/run/gw.sock"), True),
    ],
)
def test_an_address_is_read_and_its_reach_known(text: str, address: Address, loopback: bool) -> None:
    assert Address.of(text) == address
    assert address.loopback is loopback
    assert Listen(data=text).data == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "8787",
        "a",
        "a:",
        "a:65536",
        "a:-1",
        "a:٣",
        "::1:80",
        "[a]:80",
        "[::1]",
        "unix:",
        "unix:x",
        "a b:80",
        "127.0.0.1:80/x",
        "http://a:80",
        "a:1" + "0" * 5000,
        "unix:/a\0",
        "[]:80",
        "[::g]:80",
    ],
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|give"):
        Address.of(text)


@given(st.text(max_size=40))
def test_an_address_is_read_or_refused_and_nothing_else_happens(text: str) -> None:
    try:
        port = Address.of(text).port
    except ValueError:
        port = 0
    assert 0 <= port <= 65_535


@pytest.mark.parametrize(
    "url",
    ["https://a.example", "http://127.0.0.1:11434/v1", "https://[::1]:8/v1?api-version=1", "HTTPS://A.example/v1/"],
)
def test_a_base_url_may_have_a_port_a_path_and_a_query(url: str) -> None:
    assert Channel("a", url).base_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.example/v1",
        "ftp://a",
        "https://",
        "https:///v1",
        "https://u:p@a/",
        "https://u@a/",
        "https://a/#x",
        "https://a#",
        "https://a:0/",
        "https://a:99999/",
        "https://a:x/",
        "https://[::1/",
        "https://a b/",
        "https://a/ä",
        "https://a/ b",
    ],
)
def test_a_base_url_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"give|put|take|percent"):
        Channel("a", url)


@given(st.text(max_size=30))
def test_any_text_as_base_url_is_taken_or_refused(text: str) -> None:
    try:
        taken = urlsplit(Channel("a", "https://" + text).base_url)
    except ValueError:
        return
    assert taken.hostname
    assert taken.username is None
    assert not taken.fragment


@pytest.mark.parametrize("name", ["", "a b", "a\n", "ä", "x" * 129, 'a"'])
def test_a_name_may_stand_in_a_header_as_it_is(name: str) -> None:
    with pytest.raises(ValueError, match="is no name"):
        Channel(name, "https://a")


@pytest.mark.parametrize("name", ["", " m", "m\n", "a*b*", "x" * 257])
def test_a_model_name_is_printable_and_has_one_star_at_most(name: str) -> None:
    with pytest.raises(ValueError, match=r"give|may have one"):
        Model(name, (Link("a", "m"),))


def test_a_model_has_channels_and_a_chain_of_one_to_ten() -> None:
    with pytest.raises(ValueError, match="give at least one"):
        Model("m", ())
    for wrong in (0, 11):
        with pytest.raises(ValueError, match="give 1 to 10"):
            Model("m", (Link("a", "m"),), chain_max=wrong)
    assert Model("m", (Link("a", "m"),), chain_max=10).chain_max == 10


@pytest.mark.parametrize("text", ["sha256:" + "A" * 64, "sha256:" + "0" * 63, "0" * 64, "md5:" + "0" * 64, HASH + "\n"])
def test_a_hash_has_one_form(text: str) -> None:
    with pytest.raises(ValueError, match="trioproxy keys hash"):
        Key("k", text)


@pytest.mark.parametrize("text", ["2027-01-31T00:00:00Z", "2027-01-31t00:00:00.5+02:00", "2027-01-31 00:00:00z"])
def test_expiry_is_a_moment_with_its_offset(text: str) -> None:
    assert moment(text).tzinfo is not None
    assert Key("k", HASH, expires=text).expires == text


@pytest.mark.parametrize("text", ["2027-01-31", "2027-01-31T00:00:00", "2027-13-31T00:00:00Z", "soon", ""])
def test_an_expiry_that_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        Key("k", HASH, expires=text)


@pytest.mark.parametrize("patterns", [("a*b*",), ("ok", "")])
def test_a_keys_patterns_have_one_star_at_most(patterns: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"element {len(patterns) - 1}: "):
        Key("k", HASH, models=patterns)


@pytest.mark.parametrize("secret", [Secret(), Secret(env="A", file="/b"), Secret(env="A", value="x"), Secret(env="")])
def test_a_secret_has_exactly_one_source(secret: Secret) -> None:
    with pytest.raises(ValueError, match="say where the key is"):
        Channel("a", "https://a", api_key=secret)


def test_no_credential_is_in_a_repr() -> None:
    channel = Channel("a", "https://a", api_key=Secret(value="sk-1"), headers={"x-api-key": "sk-2"})
    key = Key("k", HASH)
    assert "sk-" not in repr(channel)
    assert "x-api-key" in repr(channel)
    assert HASH not in repr(key)
    assert evolve(channel, name="b").headers == {"x-api-key": "sk-2"}


@pytest.mark.parametrize(
    "host, local",
    [("127.8.0.1", True), ("::1", True), ("LOCALHOST", True), ("a.localhost", True), ("10.0.0.1", False), ("", False)],
)
def test_loopback_is_told_by_name_or_number(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_a_long_value_is_cut_in_a_message() -> None:
    assert len(shown("x" * 1000)) == 60
