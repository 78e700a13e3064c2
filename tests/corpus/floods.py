"""Hostile and degenerate replies: repeated texts, and the time in which the scanner reads them."""

import time

from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner

_BAR, _LINE = "\uff5c", "\u2581"
_ARGUMENTS = '<tool_call>{"name":"look","arguments":{"at":'
# Each flood is a text that is repeated, or a prefix and a text that is repeated after it.
FLOODS: dict[str, str | tuple[str, str]] = {
    "braces": "{",
    "brackets": "[",
    "parentheses": "[f(",
    "angles": "<",
    "half openings": "<tool_",
    "control tokens begun": "<|",
    "control tokens": "<|im_end|>",
    "quotation marks": '"',
    "apostrophes": "'",
    "backslashes": "\\",
    "white space": " \n",
    "newlines": "\n",
    "backticks": "`",
    "code fences": "```\n",
    "opened code fences": "```json\n{",
    "prose": "word ",
    "prose in brackets": "word [1] {x} ",
    "emoji": "\N{GRINNING FACE}",
    "other scripts": "\u8a9e\u0436\u05d0 ",
    "objects in prose": '{"a": 1}\n',
    "nested objects": '{"a":',
    "thoughts": "<think>",
    "thoughts closed": "<think></think>",
    "opening tags": "<tool_call>",
    "opened objects": "<tool_call>{",
    "calls": '<tool_call>{"name":"look","arguments":{"at":1}}</tool_call>\n',
    "function tags": "<function=",
    "functions": "<function=look>",
    "parameters": ("<function=look>", "<parameter=at>"),
    "parameters closed": ("<function=look>", "<parameter=at>x</parameter>"),
    "an endless parameter": ("<function=look><parameter=at>", "<"),
    "tags in a parameter": ("<function=look><parameter=at>", "<p>x</p>"),
    "ends of parameters": ("<function=look><parameter=at>", "</parameter>"),
    "invocations": '<invoke name="look"><parameter name="at">',
    "free tags": ('<tool_call><invoke name="look">', "<p>v</p>"),
    "free tags in one": ('<tool_call><invoke name="look"><at>', "</at><p>"),
    "argument pairs": ("<tool_call>look", "<arg_key>a</arg_key><arg_value>b</arg_value>"),
    "Mistral's mark": "[TOOL_CALLS]",
    "Mistral's calls": '[TOOL_CALLS]look{"at":1}',
    "Kimi's mark": "<|tool_call_begin|>",
    "DeepSeek's mark": f"<{_BAR}tool{_LINE}call{_LINE}begin{_BAR}>",
    "Gemma's mark": "<|tool_call>call:look{",
    "Gemma without mark": "call:look{",
    "Gemma's calls without mark": "call:look{at:1}\n",
    "Functionary's mark": ">>>",
    "Functionary's calls": '>>>look\n{"at":1}',
    "actions": "Action: look\n",
    "actions with input": 'Action: look\nAction Input: {"at":1}\n',
    "Gemma's text": ("<|tool_call>call:look{at:", "[x y,"),
    "Gemma's list": ("<|tool_call>call:look{at:[", "x y,"),
    "Python calls": ("[", 'look(at="x"), '),
    "Python arguments": ("[look(", "a=1, "),
    "Python list": ("[look(at=[", "'x', "),
    "Python objects": ("[look(at=[", "{'a': None}, "),
    "a string": (_ARGUMENTS + '"', "x"),
    "lines in a string": (_ARGUMENTS + '"', r"print(\"x\")\n"),
    "raw lines in a string": (_ARGUMENTS + '"', "word\n"),
    "escapes": (_ARGUMENTS + '"', r"\u00e9"),
    "surrogates": (_ARGUMENTS + '"', r"\ud83d\ude00"),
    "halves of surrogates": (_ARGUMENTS + '"', r"\ud83d"),
    "unknown escapes": (_ARGUMENTS + '"', r"\d"),
    "doubtful quotes": (_ARGUMENTS + '"', 'a "b" '),
    "doubtful quotes and commas": (_ARGUMENTS + '"', 'a", '),
    "doubtful quotes in a list": (_ARGUMENTS + '["', '"b, c" d'),
    "doubtful ends": (_ARGUMENTS + '"', '"} '),
    "curly quotes": (_ARGUMENTS + "[", "\u201ca\u201d, "),
    "quotes in curly quotes": (_ARGUMENTS + "\u201c", "a \u201cb\u201d, "),
    "escaped quotes": (_ARGUMENTS + "[", r"\"a\", "),
    "quotes in escaped quotes": (_ARGUMENTS + r"\"", r"\\\"a"),
    "quotes in a string": (_ARGUMENTS + '"', '"'),
    "strings": (_ARGUMENTS + "[", '"b", '),
    "numbers": (_ARGUMENTS + "[", "1,"),
    "long numbers": (_ARGUMENTS, "1"),
    "words": (_ARGUMENTS + "[", "true, "),
    "Python's words": (_ARGUMENTS + "[", "True, "),
    "objects": (_ARGUMENTS + "[", '{"a":1},'),
    "lists": (_ARGUMENTS + "[", "[],"),
    "deep lists": (_ARGUMENTS + "[", "[[[[[[[[]]]]]]]],"),
    "objects without commas": (_ARGUMENTS + "[", '{"a":1}'),
    "strings without commas": (_ARGUMENTS + "[", '"a" '),
    "members": (_ARGUMENTS + "{", '"a":1,'),
    "bare keys": (_ARGUMENTS + "{", "a:1,"),
    "comments": (_ARGUMENTS + "[", "/**/"),
    "Python's comments": (_ARGUMENTS + "[", "# a\n"),
    "commas": (_ARGUMENTS + "[1", ","),
    "listed calls": ("<tool_call>[", '{"name":"look","arguments":{}},'),
    "listed calls with arguments first": ("<tool_call>[", '{"arguments":{"a":1},"name":"look"},'),
    "noise": 'x<tool_call>{"a": \'[1,</s>``` <|im_end|>\\n\u8a9e\n',
}


def text_of(flood: str | tuple[str, str], size: int) -> str:
    """Return `size` characters of a flood."""
    start, unit = flood if isinstance(flood, tuple) else ("", flood)
    return (start + unit * (size // len(unit) + 1))[:size]


def measured(flood: str | tuple[str, str], size: int, piece: int) -> float:
    """Return the ratio of the scanner's times for a flood of `size` and of half this size."""
    once, twice = (_seconds_for(text_of(flood, length), piece) for length in (size // 2, size))
    return twice / max(once, 1e-6)


def _seconds_for(text: str, piece: int) -> float:
    """Return the CPU seconds of scanning a text in pieces."""
    start = time.process_time()
    scanner = Scanner(SYNTAXES, ("look",))
    for offset in range(0, len(text), piece):
        scanner.feed(text[offset : offset + piece])
    scanner.finish()
    return time.process_time() - start
