# penstock, with the dev server and the gateway for Kafka clients: `make image` builds it from the wheel.
#   docker run --network host --user "$(id -u)" -v "$PWD:/data" penstock     the dev server, which listens on 127.0.0.1
#   docker run -p 9092:9092 … penstock kafka --listen 0.0.0.0:9092 …      the gateway (docs/how-to/dev-server.md)
FROM python:3.13.9-slim-bookworm
COPY requirements/container.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/requirements.txt
COPY dist/penstock-*.whl /tmp/
RUN pip install --no-cache-dir --no-deps /tmp/penstock-*.whl && rm /tmp/penstock-*.whl \
    && useradd --uid 10001 --create-home penstock && mkdir /data && chown penstock /data
USER penstock
WORKDIR /data
ENTRYPOINT ["penstock"]
CMD ["dev", "--data", "/data/penstock"]
