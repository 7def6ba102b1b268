"""A browser without a window: it keeps cookies, follows redirects, and sends what browsers send."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urlsplit

import urllib3

_TOKEN = re.compile(r'name="form_token" value="([^"]*)"')
_TAG = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Seen:
    """An answer. `text` is what a person reads: the HTML without its tags."""

    status: int
    headers: Mapping[str, str]
    html: str
    path: str

    @property
    def text(self) -> str:
        return " ".join(unescape(_TAG.sub(" ", self.html)).split())


class Visitor:
    """Goes to the pages of the console at `origin`. `open` uses a link."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.cookies: dict[str, str] = {}
        self.form_token = ""
        self._pool = urllib3.PoolManager(retries=False)

    def open(self, link: str) -> Seen:
        return self.get(link.removeprefix(self.origin))

    def get(self, path: str, **headers: str) -> Seen:
        return self._follow(self.request("GET", path, headers={"Sec-Fetch-Site": "none", **headers}))

    def post(self, path: str, **fields: object) -> Seen:
        """Submit a form with the token of the last page that had one. Underscores in names stand for dots: `set_x`."""
        named = {name.replace("set_", "set.", 1): str(value) for name, value in fields.items()}
        body = urlencode({"form_token": self.form_token, **named})
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": self.origin,
            "Sec-Fetch-Site": "same-origin",
        }
        return self._follow(self.request("POST", path, headers=headers, body=body))

    def request(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: str = "") -> Seen:
        """One request as it is. The visitor's cookies go with it, unless `headers` have others."""
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {**({"Cookie": cookies} if cookies else {}), **(headers or {})}
        answer = self._pool.request(method, self.origin + path, headers=sent, body=body or None, redirect=False)
        html = answer.data.decode()
        for name, morsel in SimpleCookie(answer.headers.get("Set-Cookie", "")).items():
            self.cookies[name] = morsel.value
        self.form_token = next(iter(_TOKEN.findall(html)), self.form_token)
        return Seen(answer.status, answer.headers, html, path)

    def _follow(self, seen: Seen) -> Seen:
        for _ in range(3):
            if seen.status != 303:
                return seen
            place = urlsplit(seen.headers["Location"])
            assert not place.netloc
            path = f"{place.path}?{place.query}" if place.query else place.path
            seen = self.request("GET", path, headers={"Sec-Fetch-Site": "same-origin"})
        raise AssertionError(f"{seen.path} redirects again and again")
