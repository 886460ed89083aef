"""The peers' setups for the exam, each by its own documented means of failover, with the deadlines it has."""

import json

from bench.exam.rulings import HEADERS, IDLE, OPEN_FOR
from bench.exam.setups import SETUP, Place, Setup, who_ends
from bench.exam.speech import Who
from bench.process import Command
from bench.target import need_program
from bench.targets import ferrogw as ferrogw_target
from bench.targets import litellm as litellm_target
from bench.targets import portkey as portkey_target
from bench.targets import tensorzero as tensorzero_target
from bench.workload import Endpoint

SIDES: tuple[Who, ...] = ("a", "b")
LITELLM_ENV = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MASTER_KEY": litellm_target.KEY,
}


def litellm(place: Place) -> Command:
    """Two deployments of one model by `order`: a failure goes on to the next order, failures cool a deployment down."""
    common = {"model": "openai/m", "api_key": "sk-none", "timeout": HEADERS * place.scale}
    common |= {"stream_timeout": IDLE * place.scale}
    deployments = [
        {
            "model_name": name,
            "litellm_params": common | {"api_base": place.base(who, name), "order": order},
            "model_info": {"id": f"{name}-{who}"},
        }
        for name in place.names
        for order, who in enumerate(SIDES, 1)
    ]
    router = {
        "num_retries": 0,
        "allowed_fails": 2,
        "allowed_fails_policy": {"RateLimitErrorAllowedFails": 0},
        "cooldown_time": OPEN_FOR * place.scale,
    }
    said = {"model_list": deployments, "router_settings": router, "litellm_settings": {"telemetry": False}}
    config = place.where / "config.yaml"  # JSON is YAML
    config.write_text(json.dumps(said, indent=1))
    program = str(place.installed / "venv/bin/litellm")
    argv = (program, "--config", str(config), "--host", "127.0.0.1", "--port", str(place.port))
    return Command(argv, place.port, LITELLM_ENV, patience=120.0)


def litellm_endpoint(place: Place, name: str) -> Endpoint:
    """Its master key is a caller's key too."""
    return Endpoint(place.port, model=name, key=litellm_target.KEY)


TENSORZERO_CASE = """
[models.{name}]
routing = ["a", "b"]

[models.{name}.providers.a]
type = "openai"
model_name = "m"
api_base = "{a}/"
api_key_location = "none"
timeouts = {{ non_streaming.total_ms = {total}, streaming.ttft_ms = {first} }}

[models.{name}.providers.b]
type = "openai"
model_name = "m"
api_base = "{b}/"
api_key_location = "none"
"""


def tensorzero(place: Place) -> Command:
    """A model's `routing`: the next provider when one fails; a total deadline for whole answers, one for the first token."""
    times = {"total": place.milliseconds(HEADERS), "first": place.milliseconds(HEADERS)}
    parts = ["[gateway]\nobservability.enabled = false\n"]
    parts += [TENSORZERO_CASE.format(name=n, a=place.base("a", n), b=place.base("b", n), **times) for n in place.names]
    config, port = place.where / "tensorzero.toml", place.where / "port"
    config.write_text("".join(parts))
    python = place.installed / "venv/bin/python"
    return Command((str(python), "-c", tensorzero_target.STARTER, str(config), str(port)), port)


def tensorzero_endpoint(place: Place, name: str) -> Endpoint:
    """Its OpenAI-compatible door."""
    port = int((place.where / "port").read_text())
    return Endpoint(port, path="/openai/v1/chat/completions", model=f"tensorzero::model_name::{name}")


def portkey(place: Place) -> Command:
    """Without its console; the configuration comes with each call."""
    start = str(place.installed / portkey_target.START)
    return Command(("node", start, "--headless", f"--port={place.port}"), place.port, {"NODE_ENV": "production"})


def portkey_endpoint(place: Place, name: str) -> Endpoint:
    """A fallback strategy on the statuses that its documents name, with a request timeout for each target."""
    targets = [
        {
            "provider": "openai",
            "api_key": "sk-none",
            "custom_host": place.base(who, name),
            "request_timeout": place.milliseconds(HEADERS),
        }
        for who in SIDES
    ]
    strategy = {"mode": "fallback", "on_status_codes": [408, 429, 500, 502, 503, 504]}
    config = json.dumps({"strategy": strategy, "targets": targets})
    return Endpoint(place.port, headers={"x-portkey-config": config})


FERROGW = """\
strategy: {{ mode: fallback }}
targets:
  - virtual_key: openai
    timeout: {timeout}ms
    retry: {{ attempts: 1 }}
    circuit_breaker: {{ failure_threshold: 3, success_threshold: 1, timeout: {open}ms }}
  - virtual_key: groq
    model_map: {{ {model}: llama-3.1-8b-instant }}
"""


def ferrogw(place: Place) -> Command:
    """Its fallback strategy over two of the providers it knows, with its circuit breaker."""
    (name,) = place.names
    config = place.where / "config.yaml"
    times = {"timeout": place.milliseconds(HEADERS), "open": place.milliseconds(OPEN_FOR)}
    config.write_text(FERROGW.format(model=ferrogw_target.MODEL, **times))
    env = {
        "GATEWAY_CONFIG": str(config),
        "HOST": "127.0.0.1",
        "PORT": str(place.port),
        "OPENAI_API_KEY": "sk-none",
        "OPENAI_BASE_URL": place.base("a", name),
        "GROQ_API_KEY": "sk-none",
        "GROQ_BASE_URL": place.base("b", name),
        "RATE_LIMIT_RPS": "0",
        "ALLOW_UNAUTHENTICATED_PROXY": "true",
        "MASTER_KEY": "fgw_00000000000000000000000000000000",
    }
    return Command((str(place.installed / "venv/bin/ferrogw"), "serve"), place.port, env)


def ferrogw_endpoint(place: Place, _: str) -> Endpoint:
    """It takes its master key as a caller's."""
    return Endpoint(place.port, model=ferrogw_target.MODEL, key="fgw_00000000000000000000000000000000")


NGINX = """\
worker_processes 1;
daemon off;
pid {where}/nginx.pid;
error_log {where}/error.log;
events {{ worker_connections 200; }}
http {{
    access_log off;
    client_body_temp_path {where}/body;
    proxy_temp_path {where}/proxy;
    fastcgi_temp_path {where}/fastcgi;
    uwsgi_temp_path {where}/uwsgi;
    scgi_temp_path {where}/scgi;
    upstream provider {{
        server 127.0.0.1:{a} max_fails=3 fail_timeout={open}s;
        server 127.0.0.1:{b} backup;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_read_timeout {read}ms;
            proxy_next_upstream error timeout http_500 http_502 http_503 http_504 http_429 non_idempotent;
        }}
    }}
}}
"""


def nginx(place: Place) -> Command:
    """A primary and a backup server. Its failure window counts whole seconds."""
    config = place.where / "nginx.conf"
    times = {"open": max(1, round(OPEN_FOR * place.scale)), "read": place.milliseconds(HEADERS)}
    config.write_text(NGINX.format(where=place.where, port=place.port, a=place.a, b=place.b, **times))
    errors = str(place.where / "error.log")
    return Command((need_program("nginx"), "-p", str(place.where), "-c", str(config), "-e", errors), place.port)


def by_path(place: Place, name: str) -> Endpoint:
    """The case is in the path, as the upstreams have it."""
    return Endpoint(place.port, path=f"/{name}/v1/chat/completions")


SETUPS: dict[str, Setup] = {
    "trioproxy": SETUP,
    "litellm": Setup(
        litellm,
        litellm_endpoint,
        manners=("quick",),
        says=who_ends("x-litellm-model-id", {"-a": "a", "-b": "b"}),
        scaled="timeout and stream_timeout, cooldown_time",
        lacks="assured streams; a class that waits longer for the first token",
    ),
    "tensorzero": Setup(
        tensorzero,
        tensorzero_endpoint,
        manners=("quick",),
        scaled="non_streaming.total_ms, streaming.ttft_ms",
        lacks="a breaker or cooldown; an idle deadline; assured streams; a class that waits longer for the first token",
    ),
    "portkey": Setup(
        portkey,
        portkey_endpoint,
        says=who_ends("x-portkey-last-used-option-index", {"[0]": "a", "[1]": "b"}),
        scaled="request_timeout",
        lacks="a breaker or cooldown (open-source version); first-content and idle deadlines; assured streams",
    ),
    "ferrogw": Setup(
        ferrogw,
        ferrogw_endpoint,
        together=False,
        manners=("quick",),
        says=who_ends("x-gateway-target", {"openai": "a", "groq": "b"}),
        scaled="a target's timeout, its breaker's timeout",
        lacks="an idle deadline of its own; assured streams; a class that waits longer for the first token",
    ),
    "nginx": Setup(
        nginx,
        by_path,
        together=False,
        scaled="proxy_read_timeout, fail_timeout (whole seconds)",
        lacks="a deadline for content that differs from that for headers, and all that needs to read an answer: it is a floor",
    ),
}
