"""The options of the clients. Names and defaults are the dataclasses', effects the first sentences of their docstrings.

So an option cannot be there without being listed: `help(penstock.Producer)` shows the same text.
"""

import inspect
import re
from dataclasses import fields
from typing import Any

from penstock.consumer.settings import ConsumerSettings
from penstock.producer.settings import ProducerSettings
from penstock.share.settings import ShareSettings
from penstock.tuning.setting import Section, Setting, default_of

_ATTRIBUTE = re.compile(r" {4}(?P<name>\w+): (?P<text>.*)")
_SENTENCE_END = re.compile(r'(?<=\.) +(?=["A-Z`])')


def first_sentences(options: type[Any]) -> dict[str, str]:
    """The first sentence of each entry below `Attributes:` in the docstring of `options`."""
    _, _, attributes = (inspect.getdoc(options) or "").partition("Attributes:\n")
    texts: dict[str, list[str]] = {}
    name = ""
    for line in attributes.splitlines():
        found = _ATTRIBUTE.fullmatch(line)
        if found:
            name = found["name"]
            texts[name] = [found["text"]]
        elif name and line.strip():
            texts[name].append(line.strip())
    return {each: first_sentence(" ".join(lines)) for each, lines in texts.items()}


def first_sentence(text: str) -> str:
    """The text up to the end of its first sentence."""
    return _SENTENCE_END.split(text, maxsplit=1)[0]


def _options(options: type[Any]) -> tuple[Setting, ...]:
    effects = first_sentences(options)
    return tuple(
        Setting(name=each.name, default=default_of(each), effect=effects[each.name]) for each in fields(options)
    )


PRODUCER = Section(
    name="producer",
    title="Producer",
    how="Arguments of `Producer` and `AsyncProducer`.",
    settings=_options(ProducerSettings),
)
CONSUMER = Section(
    name="consumer",
    title="Consumer",
    how="Arguments of `Consumer` and `AsyncConsumer`.",
    settings=_options(ConsumerSettings),
)
SHARE_CONSUMER = Section(
    name="share-consumer",
    title="Share consumer",
    how="Arguments of `ShareConsumer` and `AsyncShareConsumer`.",
    settings=_options(ShareSettings),
)
