"""All pages, in the order of the menu. A page of yours gets a line here."""

from penstock.console.page import Page
from penstock.console.pages import (
    acls,
    audit,
    dead_letters,
    groups,
    hot,
    jobs,
    live,
    overview,
    produce,
    quotas,
    records,
    scheduled,
    share_groups,
    subscriptions,
    topic,
    topics,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    topics.PAGE,
    topic.PAGE,
    records.PAGE,
    produce.PAGE,
    live.PAGE,
    scheduled.PAGE,
    hot.PAGE,
    groups.PAGE,
    share_groups.PAGE,
    subscriptions.PAGE,
    dead_letters.PAGE,
    acls.PAGE,
    quotas.PAGE,
    audit.PAGE,
    jobs.PAGE,
)
