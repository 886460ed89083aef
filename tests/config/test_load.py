"""Loading: every fault at once, with its path, its line and what to do; and nothing guessed."""

from pathlib import Path
from textwrap import dedent

import pytest
from attrs import evolve

from trioproxy.config.load import load_config, parse_config
from trioproxy.config.model import Channel, ClassPolicy, Config, Link, Listen, Model, Price, Secret
from trioproxy.errors import ConfigError, ConfigFault
from trioproxy.policy.breaker import PRESETS, BreakerPolicy

GOOD = """
[[channels]]
name = "a"
base_url = "https://a.example/v1"
api_key = { env = "A_KEY" }

[[models]]
name = "m"
channels = [{ channel = "a", model = "a-m" }]
"""


def faults(text: str, *, after: str = GOOD) -> list[ConfigFault]:
    with pytest.raises(ConfigError) as caught:
        parse_config(dedent(text) + after, "gateway.toml")
    return list(caught.value.faults)


def only(text: str, *, after: str = GOOD) -> ConfigFault:
    (fault,) = faults(text, after=after)
    return fault


def channel(line: str) -> ConfigFault:
    return only(
        GOOD.replace('base_url = "https://a.example/v1"', f'base_url = "https://a.example/v1"\n{line}'), after=""
    )


def test_a_small_file_gets_every_default() -> None:
    assert parse_config(GOOD, "x") == Config(
        channels=(Channel("a", "https://a.example/v1", api_key=Secret(env="A_KEY")),),
        models=(Model("m", (Link("a", "a-m"),)),),
    )


def test_a_class_overrides_what_it_names_and_takes_the_rest_from_the_defaults() -> None:
    config = parse_config("[defaults]\ngate_timeout = 7\n[classes.batch]\ntotal_timeout = 1200\n" + GOOD, "x")
    assert config.defaults == ClassPolicy(gate_timeout=7.0)
    assert config.classes == {"batch": ClassPolicy(gate_timeout=7.0, total_timeout=1200.0)}


def test_the_breaker_stands_in_defaults_and_a_channel_may_have_its_own() -> None:
    text = GOOD.replace("api_key", 'breaker = { preset = "half-open", failures = 3, open_for = 15 }\napi_key')
    config = parse_config('[defaults]\nbreaker = "consecutive"\n' + text, "x")
    assert config.breaker == "consecutive"
    assert config.channels[0].breaker == evolve(PRESETS["half-open"], failures=3, open_for=15.0)


def test_a_breaker_table_without_a_preset_is_based_on_four_layer() -> None:
    config = parse_config("[defaults]\nbreaker = { failures = 9 }\n" + GOOD, "x")
    assert config.breaker == BreakerPolicy(failures=9)
    assert PRESETS["four-layer"] == BreakerPolicy()


def test_a_whole_number_is_a_fine_duration() -> None:
    assert parse_config("[defaults]\ngate_timeout = 3\n" + GOOD, "x").defaults.gate_timeout == 3.0


@pytest.mark.parametrize(
    "line, path, message",
    [
        ("open = 2027-01-01", "listen.open", "is a date or time without quotes: give true or false"),
        ("open = [1]", "listen.open", "[1] is a list: give true or false"),
        ("open = { a = 1 }", "listen.open", "is a table: give true or false"),
        ('open = "false"', "listen.open", '"false" is a string: give true or false, without quotes'),
        ("max_headers = true", "listen.max_headers", "true is a boolean: give a whole number without quotes"),
        ("max_headers = 3.0", "listen.max_headers", "3.0 is a decimal number: give a whole number without quotes"),
        ('idle_timeout = "3"', "listen.idle_timeout", '"3" is a string: give a number without quotes'),
        ("idle_timeout = true", "listen.idle_timeout", "true is a boolean: give a number without quotes"),
        ("idle_timeout = nan", "listen.idle_timeout", "NaN is not finite"),
        ("idle_timeout = inf", "listen.idle_timeout", "Infinity is not finite"),
        (f"idle_timeout = 1{'0' * 400}", "listen.idle_timeout", "is not finite"),
        ("idle_timeout = 0", "listen.idle_timeout", "0.0 is not a time to wait: give more than 0 seconds"),
        ("drain_timeout = -1", "listen.drain_timeout", "-1.0 is too little: give at least 0"),
        ("data = 8787", "listen.data", "this is a whole number: give a string in quotes"),
        ("max_heads = 1", "listen.max_heads", 'unknown key; did you mean "max_head"?'),
        ("zzz = 1", "listen.zzz", "unknown key; known are data, open"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_its_path_line_and_what_to_give(
    line: str, path: str, message: str
) -> None:
    fault = only(f"[listen]\n{line}\n")
    assert (fault.path, fault.line) == (path, 2)
    assert message in fault.message


@pytest.mark.parametrize(
    "line, path, message",
    [
        ("max_concurrency = 0", "channels[0].max_concurrency", "0 is too little: give at least 1"),
        ("price = { input = -1, output = 2 }", "channels[0].price.input", "-1.0 is too little: give at least 0"),
        ("price = { input = 1 }", "channels[0].price.output", "is missing: give it a value"),
        ("price = 3", "channels[0].price", "this is a whole number: give a table such as"),
        ('auth = "baerer"', "channels[0].auth", 'did you mean "bearer"?'),
        ("auth = 1", "channels[0].auth", "this is a whole number: give one of"),
        ('breaker = "three-layer"', "channels[0].breaker", 'give one of "four-layer", "consecutive", "half-open"'),
        ('breaker = { preset = "x" }', "channels[0].breaker", '"x" is no breaker preset'),
        ("breaker = { preset = 1 }", "channels[0].breaker", "preset is a whole number"),
        ("breaker = 3", "channels[0].breaker", "give a preset's name, or a table"),
        ("breaker = { failures = 0 }", "channels[0].breaker.failures", "0 is too little: give at least 1"),
        ("breaker = { open_for = 0 }", "channels[0].breaker.open_for", "0.0 is too little: give more than 0"),
        ("breaker = { failure = 1 }", "channels[0].breaker.failure", 'did you mean "failures"?'),
        ("params = { allow = 'x' }", "channels[0].params.allow", "this is a string: give a list in [ ]"),
        ("params = { rename = [] }", "channels[0].params.rename", "this is a list: give a table"),
        ("params = { rename = { a = 1 } }", "channels[0].params.rename.a", "this is a whole number: give a string"),
        ('headers = { "Content-Length" = "1" }', "channels[0].headers", "is set by the gateway itself"),
        ('headers = { "a b" = "1" }', "channels[0].headers", '"a b" is no header name'),
        ('headers = { a = "x\\ny" }', "channels[0].headers", 'the value of "a" is empty'),
        ('headers = { a = "1", A = "2" }', "channels[0].headers", "give each header once"),
    ],
)
def test_a_fault_in_a_channel_has_its_index_in_the_path(line: str, path: str, message: str) -> None:
    fault = channel(line)
    assert (fault.path, fault.line) == (path, 5)
    assert message in fault.message


def test_all_faults_come_at_once_in_the_order_of_the_file() -> None:
    found = faults(
        """
        [listen]
        data = "nowhere"
        opn = true
        [defaults]
        gate_timout = 3
        total_timeout = -1
        breaker = "five-layer"
        [[keys]]
        id = "k"
        hash = "md5:0"
        [classes.batch]
        mode = "assure"
        breaker = "half-open"
        """,
        after=GOOD.replace('"a-m"', "5"),
    )
    assert [fault.path for fault in found] == [
        "listen.data",
        "listen.opn",
        "defaults.gate_timout",
        "defaults.total_timeout",
        "defaults.breaker",
        "keys[0].hash",
        "classes.batch.mode",
        "classes.batch.breaker",
        "models[0].channels[0].model",
    ]
    assert [fault.line for fault in found] == [3, 4, 6, 7, 8, 11, 13, 14, 23]


def test_a_fault_in_one_channel_does_not_hide_what_is_wrong_between_the_others() -> None:
    text = GOOD.replace('name = "a"', 'name = "a"\nmax_concurrency = "many"') + GOOD.replace('"a"', '"b"')
    found = faults(text.replace('channel = "b"', 'channel = "c"'), after="")
    assert {fault.path for fault in found} == {
        "channels[0].max_concurrency",
        "models[1].name",
        "models[1].channels[0].channel",
    }


def test_a_broken_channel_is_still_known_to_the_models_that_use_it() -> None:
    assert only(GOOD.replace('base_url = "https://a.example/v1"', ""), after="").path == "channels[0].base_url"


@pytest.mark.parametrize(
    "text, line",
    [("a = \n", 1), ("a = 1\nb = [1,\n", 3), ("x = 1\nx = 2\n", 2), ('a = "\x01"', 1)],
)
def test_what_is_no_toml_is_told_with_its_line(text: str, line: int) -> None:
    fault = only(text, after="")
    assert (fault.path, fault.line) == ("gateway.toml", line)
    assert fault.message.startswith("is no TOML: ")


def test_a_file_nested_without_end_is_a_fault_and_no_crash() -> None:
    assert "nested too deeply" in only("a = " + "[" * 100_000, after="").message


def test_unknown_sections_and_sections_of_the_wrong_shape_are_faults() -> None:
    found = faults('chanels = 1\nlisten = 3\nkeys = { }\nclasses = "x"\ndefaults = []\nmodels = 1\n', after="")
    told = {fault.path: fault.message for fault in found}
    assert told["chanels"] == 'unknown key; did you mean "channels"?'
    assert "write [[keys]]" in told["keys"]
    assert "write [classes.NAME]" in told["classes"]
    assert "give a table" in told["listen"]
    assert "give a table" in told["defaults"]
    assert "add [[channels]]" in told["channels"]


def test_an_empty_file_says_what_is_needed() -> None:
    assert [fault.path for fault in faults("", after="")] == ["channels", "models"]


@pytest.mark.parametrize("name, message", [("default", "put its settings there"), ("a b", "is no name")])
def test_a_class_needs_a_usable_name(name: str, message: str) -> None:
    assert message in only(f'[classes."{name}"]\n').message


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.toml")


def test_a_file_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"# fine\n# \xff\n")
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "x.toml")
    assert caught.value.faults[0].line == 2


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_config(str(tmp_path / "x.toml")).channels[0].name == "a"


SPILL = "sk-spilled-secret-0123456789"


@pytest.mark.parametrize(
    "line",
    [
        f'api_key = "{SPILL}"',
        f'api_key = ["{SPILL}"]',
        f'api_key = {{ env = ["{SPILL}"] }}',
        f'auth = "{SPILL}"',
        f'headers = {{ authorization = "{SPILL}\\n" }}',
        f'api_key = {{ env = "A", value = "{SPILL}" }}',
        f'base_url = "https://user:{SPILL}@a.example/"',
    ],
)
def test_a_credential_in_the_wrong_place_is_never_in_a_message(line: str) -> None:
    text = GOOD.replace('api_key = { env = "A_KEY" }', line)
    if "base_url" in line:
        text = text.replace('base_url = "https://a.example/v1"\n', "")
    found = faults(text, after="")
    assert found
    assert SPILL not in "".join(map(str, found))


def test_a_callers_key_in_the_place_of_its_hash_is_not_shown() -> None:
    fault = only(f'[[keys]]\nid = "k"\nhash = "{SPILL}"\n')
    assert fault.path == "keys[0].hash"
    assert SPILL not in str(fault)


def test_prices_and_listen_arrive_as_written() -> None:
    text = '[listen]\ndata = "[::1]:0"\nopen = true\n' + GOOD.replace(
        "api_key", "price = {input=1, output=2.5}\napi_key"
    )
    config = parse_config(text, "x")
    assert config.listen == Listen(data="[::1]:0", open=True)
    assert config.channels[0].price == Price(1.0, 2.5)
