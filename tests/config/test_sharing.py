"""Classes, tenants and models together: what is refused because it cannot be kept, and what a class's name stands for."""

import pytest

from trioproxy.config.lint import warnings
from trioproxy.config.load import parse_config
from trioproxy.config.model import Config
from trioproxy.errors import ConfigError
from trioproxy.policy.classes import CLASSES, QueuePolicy

REST = '[[channels]]\nname = "c"\nbase_url = "http://localhost/v1"\n'
REST += '[[models]]\nname = "m"\nchannels = [{ channel = "c", model = "x" }]\n'
N = '[[models]]\nname = "n"\nchannels = [{ channel = "c", model = "y" }]\n'
POOL = "[classes.batch]\n[classes.batch.queue]\ntokens_per_minute = 1000\n"


def read(text: str, model: str = "") -> Config:
    return parse_config(text + REST + model, "x")


def tenants(*baselines: str, rest: str = "") -> str:
    return "".join(
        f'[[tenants]]\nname = "t{index}"\nbaseline = {{ {each} }}\n{rest}\n' for index, each in enumerate(baselines)
    )


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_with_a_stated_name_waits_as_stated(name: str) -> None:
    config = read(f"[classes.{name}]\ntotal_timeout = 3600\n")
    assert config.classes[name].queue == CLASSES[name]


def test_others_wait_only_where_they_say_so() -> None:
    config = read("[classes.own]\n[classes.waits.queue]\nbound = 9\n")
    assert (config.defaults.queue, config.classes["own"].queue) == (None, None)
    assert config.classes["waits"].queue == QueuePolicy(bound=9)


def test_the_queue_of_calls_without_a_class_is_no_others() -> None:
    config = read("[defaults.queue]\nbound = 9\n[classes.own]\n[classes.interactive]\n")
    assert config.defaults.queue == QueuePolicy(bound=9)
    assert (config.classes["own"].queue, config.classes["interactive"].queue) == (None, CLASSES["interactive"])


def test_a_stated_wait_ends_with_the_call_and_a_part_may_be_overridden() -> None:
    queue = read("[classes.batch]\ntotal_timeout = 90\n[classes.batch.queue]\nbound = 5\n").classes["batch"].queue
    assert queue is not None
    assert (queue.max_wait, queue.bound, queue.share) == (90.0, 5, 0.05)


@pytest.mark.parametrize(
    "text, path, message",
    [
        (
            POOL + tenants("batch = 600", "batch = 500"),
            "classes.batch.queue.tokens_per_minute",
            "add up to 1100, and the pool has 1000",
        ),
        (tenants("nope = 1"), "tenants[0].baseline.nope", '"nope" is no class; known are default'),
        ("[classes.agentic]\n" + tenants("agentic = 1"), "tenants[0].baseline.agentic", "has no pool to keep it in"),
        (POOL + tenants("batch = 0"), "tenants[0].baseline", "0 tokens a minute"),
        (
            POOL + tenants("batch = 600", rest="limits = { tokens_per_minute = 500 }"),
            "tenants[0].baseline.batch",
            "tokens_per_minute is 500",
        ),
        (
            "[organization]\nlimits = { tokens_per_minute = 900 }\n" + POOL + tenants("batch = 500", "batch = 500"),
            "organization.limits.tokens_per_minute",
            "add up to 1000, and all of them together may use 900",
        ),
        ("[classes.own.queue]\nmax_wait = 601\n", "classes.own.queue.max_wait", "can never pass before total_timeout"),
        ("[defaults.queue]\nmax_wait = 601\n", "defaults.queue.max_wait", "can never pass before total_timeout"),
        ("[classes.own.queue]\nbound = -1\n", "classes.own.queue.bound", "-1 is too little"),
        ("[classes.own.queue]\nshare = 1.0\n", "classes.own.queue.share", ""),
        ("[classes.own.queue]\nburst = 2\n", "classes.own.queue", "reclaim of 5.0 s is more than the pool holds"),
        ("[classes.batch]\nqueue = 3\n", "classes.batch.queue", "this is a whole number: give a table"),
        ('[[tenants]]\nname = "t"\nweight = 0\n', "tenants[0].weight", "0 is too little"),
    ],
)
def test_what_cannot_be_kept_is_a_fault(text: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert [(fault.path, message in fault.message) for fault in caught.value.faults] == [(path, True)], caught.value


@pytest.mark.parametrize(
    "fallback, more, path, message",
    [
        ('[{ model = "k" }]', N, "models[0].fallback[0].model", '"k" is no model that there is'),
        ('[{ model = "*" }]', N, "models[0].fallback[0].model", '"*" is no model that there is'),
        ('[{ model = "m" }]', N, "models[0].fallback", 'leads back to "m"'),
        ('[{ model = "n", classes = ["nope"] }]', N, "models[0].fallback[0].classes[0]", '"nope" is no class'),
        ('[{ model = "n", classes = [] }]', N, "models[0].fallback[0].classes", "the list is empty"),
        ('[{ model = "n", on = [] }]', N, "models[0].fallback[0].on", "the list is empty"),
        ('[{ model = "n", on = ["queu"] }]', N, "models[0].fallback[0].on[0]", 'did you mean "queue"?'),
    ],
)
def test_a_fallback_names_what_there_is(fallback: str, more: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read("", f"fallback = {fallback}\n{more}")
    assert [(fault.path, message in fault.message) for fault in caught.value.faults] == [(path, True)], caught.value


def test_models_that_stand_in_for_each_other_are_all_named() -> None:
    """m → n → o → n goes round between the latter two; m only leads there."""
    third = '[[models]]\nname = "o"\nchannels = [{ channel = "c", model = "z" }]\nfallback = [{ model = "n" }]\n'
    with pytest.raises(ConfigError) as caught:
        read("", 'fallback = [{ model = "n" }]\n' + N + 'fallback = [{ model = "o" }]\n' + third)
    assert [fault.path for fault in caught.value.faults] == ["models[1].fallback", "models[2].fallback"]


@pytest.mark.parametrize(
    "text, fallback, path, message",
    [
        ("[classes.batch]\n", "", "classes.batch.queue.max_wait", "waits 600 s has no time left"),
        ("[defaults.queue]\nmax_wait = 600\n", "", "defaults.queue.max_wait", "total_timeout, which is 600 s"),
        (
            "[classes.agentic]\n",
            'fallback = [{ model = "n", on = ["queue"] }]\n' + N,
            "models[0].fallback[0]",
            "it never happens",
        ),
    ],
)
def test_what_can_do_nothing_is_warned_about(text: str, fallback: str, path: str, message: str) -> None:
    told = [warning for warning in warnings(read(text, fallback)) if "one channel" not in warning.message]
    assert [(warning.path, message in warning.message) for warning in told] == [(path, True)]
