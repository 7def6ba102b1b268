"""All pages, in the order of the menu. A page of yours gets a line here."""

from penstock.console.page import Page
from penstock.console.pages import live, overview, produce, records, topic, topics

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    records.PAGE,
    produce.PAGE,
    live.PAGE,
)
