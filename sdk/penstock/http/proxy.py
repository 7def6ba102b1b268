"""The proxy of a URL, by the variables that boto3, curl and pip read: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY."""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of(url: str) -> str | None:
    """The URL of the proxy, or None if requests to `url` go to its host themselves. Small or large letters count."""
    parts = urlsplit(url)
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(parts.hostname or ""):
        return None
    return found if "://" in found else f"http://{found}"
