"""Selects the profile of a model by its names, its chat template and its architecture.

Names take precedence over the chat template, and the template over the architecture: a fine-tune
has the template and the architecture of its base model.

- Names: a name may be a path; its last part that matches a pattern is used. Of the patterns
  that match this part, the pattern with the longest literal text wins. So `qwen3-coder` wins over
  `qwen3`, and `hermes-3*llama` over `llama-3.1`.
- Chat templates: every string of the profile must occur in the template. The profile with the
  longest strings wins. This recognizes models whose files were renamed.
- Architectures: the architecture must be equal to one of the profile's architectures.

If two matches have equal strength, the profile that is first by name wins. A test reports such
profiles as a defect.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase

from proxy.profiles.profile import GENERIC, Profile, literal_length

_SEPARATORS = re.compile(r"[/\\]")
# `Qwen 3`, `qwen_3` and `qwen-3` are equal
_ALIKE = str.maketrans({" ": "-", "_": "-"})
_FILE_ENDING = ".gguf"
_MOST_PARTS = 16  # number of parts at the end of a path that are compared
_LONGEST_PART = 256  # characters; file systems allow 255 bytes


@dataclass(frozen=True, slots=True)
class Evidence:
    """The properties by which a model is recognized.

    `names` are all names of the model, in any order: id, alias, path, GGUF's general.name and
    basename. `takes_tools` is whether the model accepts tools according to the backend, None if the
    backend does not report it.
    """

    names: tuple[str, ...] = ()
    architecture: str = ""
    template: str = ""
    takes_tools: bool | None = None


class MatchKind(IntEnum):
    """The property that a pattern matches, in increasing order of strength."""

    ARCHITECTURE = 1
    TEMPLATE = 2
    NAME = 3


@dataclass(frozen=True, slots=True)
class Recognition:
    """A profile, and the reason for its selection as a text.

    `strength` orders matches. It consists of the kind of the match, the negative distance of the
    matching part from the end of the path, and the number of literal characters of the pattern.
    """

    profile: Profile
    reason: str
    strength: tuple[int, int, int] = field(default=(0, 0, 0), compare=False)


def recognize(evidence: Evidence, profiles: Iterable[Profile]) -> Recognition:
    generic = Recognition(GENERIC, "no known profile matches; generic profile")
    return next(iter(candidates(evidence, profiles)), generic)


def candidates(evidence: Evidence, profiles: Iterable[Profile]) -> tuple[Recognition, ...]:
    """Return the best match of each matching profile, in decreasing order of strength."""
    best = [
        max(matches, key=lambda match: match.strength)
        for profile in sorted(profiles, key=lambda profile: profile.name)
        if (matches := list(_matches(evidence, profile)))
    ]
    return tuple(sorted(best, key=lambda match: match.strength, reverse=True))


def _matches(evidence: Evidence, profile: Profile) -> Iterator[Recognition]:
    for name in evidence.names:
        yield from _matches_by_name(name, profile)
    marks = profile.matching.templates
    if marks and all(mark in evidence.template for mark in marks):
        quoted = " and ".join(f'"{mark}"' for mark in marks)
        reason = f"its chat template contains {quoted}"
        strength = (MatchKind.TEMPLATE, 0, sum(map(len, marks)))
        yield Recognition(profile, reason, strength)
    if evidence.architecture and evidence.architecture in profile.matching.architectures:
        reason = f'its architecture is "{evidence.architecture}"'
        yield Recognition(profile, reason, (MatchKind.ARCHITECTURE, 0, 0))


def _matches_by_name(name: str, profile: Profile) -> Iterator[Recognition]:
    for distance, part in enumerate(_parts(name)):
        plain = _plain(part).removesuffix(_FILE_ENDING)
        for pattern in profile.matching.names:
            if fnmatchcase(plain, _plain(pattern)):
                strength = (MatchKind.NAME, -distance, literal_length(pattern))
                reason = f'name "{part}" matches "{pattern}"'
                yield Recognition(profile, reason, strength)


def _parts(name: str) -> list[str]:
    """Return the parts of a path in reverse order, limited in number and length."""
    tail = name[-_MOST_PARTS * _LONGEST_PART :]
    parts = _SEPARATORS.split(tail)[::-1][:_MOST_PARTS]
    return [part[:_LONGEST_PART] for part in parts]


def _plain(text: str) -> str:
    return text.lower().translate(_ALIKE)
