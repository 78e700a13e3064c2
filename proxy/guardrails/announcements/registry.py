"""Every language that announcements are recognised in, by the script it is written in."""

# ruff: noqa: RUF001 - letters of many scripts look alike

import re

from proxy.guardrails.announcements.arabic import ARABIC
from proxy.guardrails.announcements.chinese import CHINESE
from proxy.guardrails.announcements.cues import Script
from proxy.guardrails.announcements.dutch import DUTCH
from proxy.guardrails.announcements.english import ENGLISH
from proxy.guardrails.announcements.french import FRENCH
from proxy.guardrails.announcements.german import GERMAN
from proxy.guardrails.announcements.hindi import HINDI
from proxy.guardrails.announcements.italian import ITALIAN
from proxy.guardrails.announcements.japanese import JAPANESE
from proxy.guardrails.announcements.korean import KOREAN
from proxy.guardrails.announcements.matching import Matcher
from proxy.guardrails.announcements.polish import POLISH
from proxy.guardrails.announcements.portuguese import PORTUGUESE
from proxy.guardrails.announcements.russian import RUSSIAN
from proxy.guardrails.announcements.spanish import SPANISH
from proxy.guardrails.announcements.turkish import TURKISH
from proxy.guardrails.announcements.vietnamese import VIETNAMESE

LANGUAGES = (
    ENGLISH,
    GERMAN,
    DUTCH,
    FRENCH,
    SPANISH,
    PORTUGUESE,
    ITALIAN,
    POLISH,
    TURKISH,
    VIETNAMESE,
    RUSSIAN,
    ARABIC,
    HINDI,
    CHINESE,
    JAPANESE,
    KOREAN,
)
_LETTERS = {
    Script.LATIN: "a-zà-ɏḀ-ỿ",
    Script.CYRILLIC: "Ѐ-ӿ",
    Script.ARABIC: "\u0600-\u06ff",
    Script.DEVANAGARI: "\u0900-\u097f",
    Script.HANGUL: "가-힣",
    Script.KANA: "ぁ-ヿ",
    Script.HAN: "一-鿿",
}
_LETTER = {script: re.compile(f"[{letters}]") for script, letters in _LETTERS.items()}
_MATCHERS = {
    script: tuple(Matcher(one) for one in LANGUAGES if one.script is script) for script in Script
}


def matchers_for(sentence: str) -> tuple[Matcher, ...]:
    """Return the tables that a sentence may be written in."""
    if sentence.isascii():
        return _MATCHERS[Script.LATIN]
    scripts = [one for one, letter in _LETTER.items() if letter.search(sentence)]
    if Script.KANA in scripts and Script.HAN in scripts:
        scripts.remove(Script.HAN)
    return tuple(matcher for one in scripts for matcher in _MATCHERS[one])


def prepare() -> None:
    """Compile every table, so that no reply has to wait for it: a quarter of a second in all."""
    for matchers in _MATCHERS.values():
        for one in matchers:
            one.prepare()
