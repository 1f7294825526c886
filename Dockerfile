# syntax=docker/dockerfile:1
# A name may stand for another image tomorrow; `make image` builds on the digest it has now, and
# says which: PYTHON_IMAGE=python:3.13-slim@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim
FROM ${PYTHON_IMAGE} AS build
# For processors that a package has no wheel for; faust-streaming has none for arm64.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir uv==0.13.8
ENV VIRTUAL_ENV=/opt/pop-stream UV_COMPILE_BYTECODE=1 UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never
RUN uv venv "$VIRTUAL_ENV"
WORKDIR /src
# The lock file says which versions and hashes; what only tests or the embedded servers need
# stays out.
COPY pyproject.toml requirements.lock ./
RUN uv pip install --require-hashes -r pyproject.toml --extra otel -c requirements.lock
COPY README.md LICENSE ./
COPY pop_stream pop_stream
COPY sql sql
COPY topics topics
RUN uv build --wheel --build-constraints requirements.lock --require-hashes --out-dir /dist && uv pip install --no-deps /dist/*.whl

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/pop-stream pop-stream
COPY --from=build /opt/pop-stream /opt/pop-stream
ENV PATH=/opt/pop-stream/bin:$PATH PYTHONUNBUFFERED=1
USER pop-stream
# Handlers of your own go here: modules of the working directory are found.
WORKDIR /var/lib/pop-stream
EXPOSE 8080
ENTRYPOINT ["pop-stream"]
CMD ["--help"]
