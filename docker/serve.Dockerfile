# `t2t serve`, for exports and runs; docs/serving.md has the commands. The server has no
# authentication: open its port to others through a proxy only.

FROM python:3.11-slim
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY t2t_keras t2t_keras
COPY problems problems
COPY hparams hparams
COPY plugins plugins
# The versions are those of pyproject.toml.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[serve]"

ENV HOME=/tmp
USER 1000
WORKDIR /models
EXPOSE 8501
# It answers 503, which raises an error, until every model has translated a sentence.
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/health')"]
ENTRYPOINT ["t2t", "serve", "--host", "0.0.0.0", "--port", "8501"]
