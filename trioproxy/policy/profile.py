"""How a model counts what it is sent: its vocabulary, what a message, a tool and an image cost.

Known by the model's own (provider's) name, first match wins. It is data for an estimate that learning corrects, so a wrong
guess costs some accuracy for the first calls and no more; limits are never inferred from a name.
"""

import re

from attrs import field, frozen

from trioproxy.policy.images import Capped, Crops, Flat, Patches, Rule, Tiles
from trioproxy.policy.scripts import Vocabulary

NEWER_CLAUDE = (4, 7)  # since then: a new tokenizer, larger images


@frozen
class Profile:
    """`factor` is tokens per token of the vocabulary. Messages, reply and tools are tokens added for each or for all."""

    images: Rule = field(factory=lambda: Capped(1568, 1568))
    vocabulary: Vocabulary = "o200k"
    factor: float = 1.0
    message: int = 3
    reply: int = 3
    tools: int = 12
    schema: float = 0.9  # tokens of tool definitions per token of their JSON


_MINI, _NANO = Patches(1.62), Patches(2.46)
_ORIGINAL = Patches(1.2, (2500, 2048), (10_000, 6000), auto="original")
_UNSCALED = Patches(1.2, (2500, 2048), (30_000, 1_000_000), auto="original")  # larger ones are refused, not scaled
# The factor of gpt-5.2, gpt-5.4 and codex is nobody's figure; that of their successors is the dearer guess.
_GPT = (
    ("gpt-4o-mini", Tiles(2833, 5667)),
    ("gpt-4.1-mini", _MINI),
    ("gpt-4.1-nano", _NANO),
    ("gpt-4o", Tiles(85, 170)),
    ("gpt-4.1", Tiles(85, 170)),
    ("gpt-4.5", Tiles(85, 170)),
    ("gpt-5-mini", _MINI),
    ("gpt-5-nano", _NANO),
    ("gpt-5.4-mini", _MINI),
    ("gpt-5.4-nano", _NANO),
    ("gpt-5.4", Patches(1.2, (2500, 2048), (10_000, 6000))),
    ("gpt-5.5", _ORIGINAL),
    ("gpt-5.", Patches(1.2)),
    ("gpt-5-codex", Patches(1.2)),
    ("gpt-5", Tiles(70, 140)),
    ("gpt-6", _UNSCALED),
    ("o4-mini", Patches(1.72)),
    ("o1", Tiles(75, 150)),
    ("o3", Tiles(75, 150)),
    ("computer-use", Tiles(65, 129)),
)
# gpt-5.6 and what follows it, before the plain "gpt-5.".
_LATE_GPT = re.compile(r"gpt-5\.(?:[6-9]|\d\d)")
_CLAUDE = re.compile(r"claude-(?:[a-z]+-)*(\d+)(?:[-.](\d{1,2})(?!\d))?")
_OLD_CLAUDE = Profile(Capped(1568, 1568), factor=1.15, message=4, reply=8, tools=346, schema=1.0)
_NEW_CLAUDE = Profile(Capped(2576, 4784), factor=1.35, message=4, reply=8, tools=346, schema=1.0)
_OTHERS = (
    ("gpt-4", Profile(Tiles(85, 170), "cl100k")),
    ("gpt-3.5", Profile(vocabulary="cl100k")),
    ("text-embedding-", Profile(vocabulary="cl100k", message=0, reply=0)),
    ("deepseek", Profile(vocabulary="deepseek")),
    ("gemini-1", Profile(Crops(258), factor=1.05)),
    ("gemini-2", Profile(Crops(258), factor=1.05)),
    ("gemini", Profile(Flat(1101), factor=1.05)),
    ("mistral", Profile(factor=1.1)),
    ("", Profile()),
)
_PREFIXES = (*((prefix, Profile(rule)) for prefix, rule in _GPT), *_OTHERS)


def profile_of(model: str) -> Profile:
    """The profile of a model by its provider's name, `vendor/` and `vendor.` before it passed over. Never fails."""
    name = model.lower().rpartition("/")[2]
    claude = _CLAUDE.search(name)
    if claude or "claude" in name:
        version = (int(claude[1]), int(claude[2] or 0)) if claude else NEWER_CLAUDE
        return _NEW_CLAUDE if version >= NEWER_CLAUDE else _OLD_CLAUDE
    if _LATE_GPT.match(name):
        return Profile(_UNSCALED)
    return next(profile for prefix, profile in _PREFIXES if name.startswith(prefix))
