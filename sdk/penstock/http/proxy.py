"""The proxy of a URL, by the variables that boto3, curl and pip read: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY."""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from penstock.errors import NotConfiguredError
from penstock.local_files import is_loopback


def proxy_of(url: str) -> str | None:
    """The URL of the proxy, or None if requests to `url` go to its host themselves. Small or large letters count.

    No proxy reaches a server of this machine, such as `penstock dev`. Raises NotConfiguredError for a proxy of another
    kind than HTTP.
    """
    parts = urlsplit(url)
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or is_loopback(url) or proxy_bypass(parts.netloc) or proxy_bypass(parts.hostname or ""):
        return None
    proxy = found if "://" in found else f"http://{found}"
    kind = urlsplit(proxy).scheme
    if kind not in ("http", "https"):
        raise NotConfiguredError(
            f"the environment names a proxy of the kind {kind!r:.20} for {parts.hostname}: give an HTTP proxy in "
            f"{parts.scheme.upper()}_PROXY, or the host in NO_PROXY"
        )
    return proxy
