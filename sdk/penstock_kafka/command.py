"""`penstock kafka`: the gateway as a command. The `penstock` command finds it by its entry point."""

import asyncio
import logging
import signal
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.endpoint.listening import fitting_connections
from penstock.endpoint.listening import listen as open_socket
from penstock.errors import NotConfiguredError
from penstock.http.async_transport import AsyncTransport, open_async_transport
from penstock.http.named_transport import TRANSPORT_NAMES, TransportName
from penstock_core.limits import KAFKA_CONNECTIONS_DEFAULT_MAX
from penstock_kafka.settings import DEFAULT_PORT, Address, Settings

if TYPE_CHECKING:  # the imports of kio and aiohttp would slow each help of `penstock`
    from penstock_kafka.gateway import Protection

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The addresses that the gateway listens on."""

    kafka: Address
    metrics: Address | None


@click.command()
@click.option(
    "--listen",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Where Kafka clients connect; port 0 takes a free one.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address that clients are told, if they reach the gateway by another one than --listen.",
)
@click.option("--url", metavar="URL", help="The service's URL, instead of PENSTOCK_URL.")
@click.option("--create-topics", is_flag=True, help="Create a topic that a client asks for by name, if it is missing.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="The partitions of a topic that the gateway creates.",
)
@click.option(
    "--share-start",
    type=click.Choice(["latest", "earliest"]),
    default="latest",
    show_default=True,
    help="Where a share group begins that the gateway creates.",
)
@click.option(
    "--unknown-settings",
    type=click.Choice(["ignore", "refuse"]),
    default="ignore",
    show_default=True,
    help="Settings of Kafka's topics and groups without effect here: take them with a warning, or refuse them.",
)
@click.option(
    "--connections-max",
    type=click.IntRange(1, 60_000),
    default=KAFKA_CONNECTIONS_DEFAULT_MAX,
    show_default=True,
    help="Connections at once.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The certificate chain, in PEM: clients use TLS.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The certificate's key, in PEM.")
@click.option("--users", type=_FILE, metavar="FILE", help="Lines of NAME:PASSWORD: clients log in by SASL/PLAIN.")
@click.option(
    "--transport",
    type=click.Choice(TRANSPORT_NAMES),
    help="What carries calls to the service; by default PENSTOCK_TRANSPORT, else auto.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Answer Prometheus there, at /metrics.")
@click.option("--verbose", is_flag=True, help="Log more on stderr.")
def kafka(
    listen: str,
    advertise: str | None,
    url: str | None,
    transport: TransportName | None,
    create_topics: bool,
    partitions: int,
    share_start: str,
    unknown_settings: str,
    connections_max: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    users: Path | None,
    metrics: str | None,
    verbose: bool,
) -> None:
    """Serve Kafka clients on this host, by calls to your Penstock service.

    The gateway keeps no data. It calls the service with the credentials of this host, as the other commands do. Point
    your clients' `bootstrap.servers` to it. Ctrl-C or SIGTERM stops it once open requests are answered.

    To serve other hosts, give --listen an address that they reach, --advertise if they know it by another name, and
    --tls-cert, --tls-key and --users. All users have the rights of this host's credentials.

    Needs `pip install 'penstock[kafka]'`.

    For example: penstock kafka --listen 127.0.0.1:9092 --create-topics
    """
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it logs where it found credentials
    address = _address("--listen", listen)
    settings = Settings(
        advertised=address if advertise is None else _address("--advertise", advertise),
        creates_topics=create_topics,
        created_partitions=partitions,
        share_start=share_start,
        refuses_unknown_settings=unknown_settings == "refuse",
        connections_max=fitting_connections(connections_max),
    )
    if address.host not in _LOOPBACK and (tls_cert is None or users is None):
        raise click.BadParameter(
            f"{address.host}: clients on other hosts would have this host's rights, so give --tls-cert, --tls-key and "
            "--users, or listen on 127.0.0.1",
            param_hint="--listen",
        )
    if (tls_cert is None) != (tls_key is None):
        raise click.BadParameter("give --tls-cert and --tls-key together", param_hint="--tls-cert")
    places = Places(kafka=address, metrics=None if metrics is None else _address("--metrics", metrics))
    try:
        carrier = open_async_transport(url, transport=transport)
    except NotConfiguredError as error:
        raise click.ClickException(str(error)) from error
    try:
        protection = _protection(tls_cert, tls_key, users)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}: `penstock kafka` needs `pip install 'penstock[kafka]'`") from error
    asyncio.run(_run(carrier, settings, places, protection))


def _protection(tls_cert: Path | None, tls_key: Path | None, users: Path | None) -> "Protection":
    from penstock_kafka.gateway import Protection
    from penstock_kafka.security.users import UsersFileError, read_users, server_tls

    try:
        tls = None if tls_cert is None or tls_key is None else server_tls(tls_cert, tls_key)
    except OSError as error:
        raise click.BadParameter(f"{tls_cert} and {tls_key}: {error}", param_hint="--tls-cert") from error
    try:
        return Protection(tls=tls, users=None if users is None else read_users(users))
    except UsersFileError as error:
        raise click.BadParameter(str(error), param_hint="--users") from error


async def _run(transport: AsyncTransport, settings: Settings, places: Places, protection: "Protection") -> None:
    from penstock_kafka.gateway import Gateway

    listening = _listen(places.kafka)
    metrics = None if places.metrics is None else _listen(places.metrics)
    bound = replace(places.kafka, port=listening.getsockname()[1])
    if settings.advertised.port == 0:
        settings = replace(settings, advertised=replace(settings.advertised, port=bound.port))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gateway = Gateway(transport, settings, protection)
    await gateway.start(listening, metrics)
    click.echo(f"Kafka clients are served at {bound}; they are told {settings.advertised}. Ctrl-C stops.")
    sys.stdout.flush()
    await stop.wait()
    await gateway.close()
    click.echo("Stopped.")


def _listen(address: Address) -> socket.socket:
    try:
        return open_socket(address.port, address.host)
    except OSError as error:
        raise click.ClickException(f"{address} cannot be listened on: {error.strerror}") from error


def _address(option: str, text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter(f"{text!r:.100}: give HOST:PORT", param_hint=option)
    return Address(host=host.strip("[]"), port=int(port))
