"""Selects the profile of a model by its names, its chat template and its architecture.

A name outranks a chat template, and that outranks an architecture: a fine-tune keeps the template
and the architecture of its base model.

- Names: of a path, the last part that any pattern matches; there, the pattern with the longest
  literal text. So "qwen3-coder" beats "qwen3", and `hermes-3*llama` beats `llama-3.1`.
- Chat templates: every string of the profile occurs in it; the longest text in total wins. This
  recognizes renamed files.
- Architectures: equality.

Two matches of equal strength are a defect of the profiles, which a test reports; then the profile
that is first by name is selected.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase

from proxy.profiles.profile import GENERIC, Profile, literal_length

_SEPARATORS = re.compile(r"[/\\]")
_ALIKE = str.maketrans({" ": "-", "_": "-"})
_FILE_ENDING = ".gguf"
_MOST_PARTS = 16  # of a path, from its end
_LONGEST_PART = 256  # characters; names of files have no more


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts about a model before it has a profile.

    `names` are all its names, in any order: id, alias, path, GGUF's general.name and basename.
    `takes_tools`: whether the backend reports that it takes tools, None if it reports nothing.
    """

    names: tuple[str, ...] = ()
    architecture: str = ""
    template: str = ""
    takes_tools: bool | None = None


class MatchKind(IntEnum):
    """The basis of a match, the weakest first."""

    ARCHITECTURE = 1
    TEMPLATE = 2
    NAME = 3


@dataclass(frozen=True, slots=True)
class Recognition:
    """A profile and the reason for it, one phrase for people.

    The `strength` is the kind of the match, the nearness to the end of a path, the literal length.
    """

    profile: Profile
    reason: str
    strength: tuple[int, int, int] = field(default=(0, 0, 0), compare=False)


def recognise(evidence: Evidence, profiles: Iterable[Profile]) -> Recognition:
    generic = Recognition(GENERIC, "no known profile matches; generic profile")
    return next(iter(candidates(evidence, profiles)), generic)


def candidates(evidence: Evidence, profiles: Iterable[Profile]) -> tuple[Recognition, ...]:
    """Return the best match of every matching profile, the strongest first."""
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
    """Return the parts of a path, the last one first, limited in number and length."""
    tail = name[-_MOST_PARTS * _LONGEST_PART :]
    parts = _SEPARATORS.split(tail)[::-1][:_MOST_PARTS]
    return [part[:_LONGEST_PART] for part in parts]


def _plain(text: str) -> str:
    return text.lower().translate(_ALIKE)
