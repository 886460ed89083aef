"""The fault script: what a line means, and whom it hits when."""

import pytest

from bench import faults
from bench.faults import Effect, Fault, Script


def test_a_line_says_when_what_and_for_whom() -> None:
    wanted = Fault("status", 503, start=10, end=20, share=0.5, model="m", key="k")
    assert faults.parse("10-20 status=503 share=0.5 model=m key=k") == wanted
    assert faults.parse("30- stall") == Fault("stall", start=30)


@pytest.mark.parametrize(("line", "said"), [("boom=1", "boom"), ("10-20", "nothing"), ("model cut=1", "model")])
def test_a_wrong_line_is_named(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        faults.parse(line)


def effect(script: Script, now: float, *, key: str = "k", model: str = "m", chance: float = 0.0) -> Effect | None:
    return script.effect(now, (key, model), 100, chance)


def test_a_fault_holds_in_its_span_for_its_share_of_its_callers() -> None:
    script = Script((faults.parse("10-20 status=500 share=0.5 key=k"),))
    assert effect(script, 10.0) == Effect("status", 500)
    assert effect(script, 9.9) is None
    assert effect(script, 20.0) is None
    assert effect(script, 10.0, chance=0.5) is None
    assert effect(script, 10.0, key="other") is None


def test_the_first_fault_that_applies_wins() -> None:
    script = Script((faults.parse("cut=1 model=a"), faults.parse("stall")))
    assert effect(script, 0.0, model="a") == Effect("cut", 1)
    assert effect(script, 0.0) == Effect("stall", 0)


def test_a_slow_ramp_grows_over_its_span() -> None:
    script = Script((faults.parse("10-20 slow=2.0"),))
    assert effect(script, 10.0) == Effect("slow", 0.0)
    assert effect(script, 15.0) == Effect("slow", 1.0)


def test_a_token_window_refuses_what_exceeds_it_until_the_minute_is_over() -> None:
    script = Script((faults.parse("tpm=250"),))
    assert effect(script, 5.0) is None
    assert effect(script, 6.0) is None
    assert effect(script, 15.0) == Effect("tpm", 50.0)
    assert effect(script, 65.0) is None


def test_shares_of_several_faults_are_independent() -> None:
    script = Script((faults.parse("status=500 share=0.5"), faults.parse("stall share=0.5")))
    kinds = [found.kind if (found := effect(script, 0.0, chance=n / 1000)) else None for n in range(1000)]
    assert [kinds.count(kind) for kind in ("status", "stall", None)] == [500, 250, 250]
