"""The words and sentences of a passage, and the openers that docs and docstrings avoid.

A headless opener makes a clause the subject and names no actor: "What is left is sent later." The reader has to find
out who does what. Write "The sender keeps the rest and sends it later." A question is no headless opener.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.passages import CODE, Passage

LONG_SENTENCE_WORDS = 35  # a sentence with more words is too long

_ABBREVIATION = re.compile(r"(?<![\w.])(e\.g|i\.e|cf|vs|approx|resp|incl|fig|mr|mrs|dr|prof|pp)\.$", re.IGNORECASE)
_SOFT_ABBREVIATION = re.compile(r"(?<![\w.])(etc|al|a\.m|p\.m)\.$", re.IGNORECASE)  # may end a sentence
_BREAK = re.compile(r"[.!?…]+[\"'”’)\]*]*(?=\s)|:(?=\s)")
_CAPITAL = re.compile(r"[\"'“‘(\[*]*([A-Z0-9]|" + re.escape(CODE) + ")")
_IDENTIFIER = re.compile(r"[\"'“‘(\[*]*[a-z]\w*([._/]\w|\()")
_WORD = re.compile(r"[^\W_]")

_HEADLESS = re.compile(
    r"(what(ever)?|who(ever|se|soever)?|which(ever)?|nobody|others|anybody|how(?! to\b)|whether(?! or not\b)|why"
    r"|where(?! or when\b)|of (one|those|what|whatever|all that)|that which|that (a|an|the|it|they|this|each|no)"
    r"|those (that|who|which|of)|one (that|who|which|whose)|all (that|of what)|none of (what|those)"
    r"|(any|every|no)thing (that|which|whose|it|they|we|you))\b",
    re.IGNORECASE,
)
_ADVERBIAL = re.compile(  # "Where a zone is out, the service …"
    r"(where (?!to\b|(there|it) (is|are|was|were)\b)|whether .*\bor\b)[^,:;]*,", re.IGNORECASE
)
_CLAUSE_AS_SUMMARY = re.compile(r"(where|when)\b", re.IGNORECASE)  # "Where a record is stored."
_FOREIGN = re.compile(  # "stands for" and "stands still" are English
    r"\b(beside|stands?(?! (?:for|in for|still|up)\b)(?!-)|bec(?:omes?|ame) of|as far as|shall)\b", re.IGNORECASE
)
_OPENER_AFTER_COLON = re.compile(r"(What|Who|Whoever|Whatever|Nobody|Others|Of one that|Of those)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence with its count of words and the number of the line on which it begins.

    `is_headless`: it opens with a clause or a pronoun in place of an actor, and is no question. `foreign` are its words
    that betray a foreign hand: `beside` for "next to", `stands` for "is", `becomes of`, `as far as`, `shall`.
    """

    line: int
    text: str
    words: int
    is_headless: bool
    foreign: tuple[str, ...] = ()

    @property
    def is_long(self) -> bool:
        """The sentence has more than `LONG_SENTENCE_WORDS` words."""
        return self.words > LONG_SENTENCE_WORDS


def sentences(passage: Passage) -> Iterator[Sentence]:
    """The sentences of a passage in order. A list item or comment without a full stop is one sentence."""
    start = 0
    is_summary = passage.is_summary
    for end in [*_ends(passage.text), len(passage.text)]:
        part = passage.text[start:end]
        text = " ".join(part.split())
        words = sum(1 for word in text.split() if _WORD.search(word))
        if words:
            begin = start + len(part) - len(part.lstrip())
            yield Sentence(
                line=passage.line + passage.text.count("\n", 0, begin),
                text=text.replace(CODE, "`…`"),
                words=words,
                is_headless=_is_headless(text, is_summary=is_summary),
                foreign=tuple(each[0].lower() for each in _FOREIGN.finditer(text)),
            )
            is_summary = False
        start = end


def _ends(text: str) -> Iterator[int]:
    for mark in _BREAK.finditer(text):
        before, after = text[: mark.end()].rstrip("\"'”’)]*"), text[mark.end() :].lstrip()
        if mark[0] == ":":
            if _OPENER_AFTER_COLON.match(after):
                yield mark.end()
        elif not _ABBREVIATION.search(before) and (
            _CAPITAL.match(after) or (_IDENTIFIER.match(after) and not _SOFT_ABBREVIATION.search(before))
        ):
            yield mark.end()


def _is_headless(text: str, *, is_summary: bool) -> bool:
    text = text.lstrip("\"'“‘([")
    if text.rstrip("\"'”’)]").endswith("?"):
        return False
    if is_summary and _CLAUSE_AS_SUMMARY.match(text):
        return True
    return bool(_HEADLESS.match(text)) and not _ADVERBIAL.match(text)
