"""`penstock kafka`: the gateway as a command. The `penstock` command finds it by its entry point."""

import asyncio
import logging
import signal
import sys

import click

from penstock.errors import NotConfiguredError
from penstock.http.async_transport import AsyncTransport, open_async_transport
from penstock_kafka.settings import DEFAULT_PORT, Address, Settings

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


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
    "--connections-max", type=click.IntRange(1, 60_000), default=2_000, show_default=True, help="Connections at once."
)
@click.option("--verbose", is_flag=True, help="Log more on stderr.")
def kafka(
    listen: str,
    advertise: str | None,
    url: str | None,
    create_topics: bool,
    partitions: int,
    connections_max: int,
    verbose: bool,
) -> None:
    """Serve Kafka clients on this host, by calls to your Penstock service.

    The gateway keeps no data. It calls the service with the credentials of this host, as the other commands do. Point
    your clients' `bootstrap.servers` to it. Ctrl-C or SIGTERM stops it once open requests are answered.

    Needs `pip install 'penstock[kafka]'`.
    """
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    address = _address("--listen", listen)
    advertised = address if advertise is None else _address("--advertise", advertise)
    if address.host not in _LOOPBACK:
        raise click.BadParameter(
            f"{address.host}: other hosts could use this host's rights; listen on 127.0.0.1", param_hint="--listen"
        )
    settings = Settings(
        advertised=advertised,
        creates_topics=create_topics,
        created_partitions=partitions,
        connections_max=connections_max,
    )
    try:
        transport = open_async_transport(url)
    except NotConfiguredError as error:
        raise click.ClickException(str(error)) from error
    asyncio.run(_run(transport, settings, address))


async def _run(transport: AsyncTransport, settings: Settings, address: Address) -> None:
    try:
        from penstock_kafka.gateway import Gateway
        from penstock_kafka.wire.server import listen
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}: `penstock kafka` needs `pip install 'penstock[kafka]'`") from error
    try:
        listening = listen(address.host, address.port)
    except OSError as error:
        raise click.ClickException(f"{address} cannot be listened on: {error.strerror}") from error
    bound = Address(host=address.host, port=listening.getsockname()[1])
    if settings.advertised.port == 0:
        settings = Settings(
            advertised=Address(host=settings.advertised.host, port=bound.port),
            creates_topics=settings.creates_topics,
            created_partitions=settings.created_partitions,
            connections_max=settings.connections_max,
        )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gateway = Gateway(transport, settings)
    await gateway.start(listening)
    click.echo(f"Kafka clients are served at {bound}; they are told {settings.advertised}. Ctrl-C stops.")
    sys.stdout.flush()
    await stop.wait()
    await gateway.close()
    click.echo("Stopped.")


def _address(option: str, text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise click.BadParameter(f"{text!r:.100}: give HOST:PORT", param_hint=option)
    return Address(host=host.strip("[]"), port=int(port))
