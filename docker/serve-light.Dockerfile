# `t2t serve` and `t2t translate` for exports of --format ctranslate2, without TensorFlow:
# docs/serving.md. The server has no authentication: open its port through a proxy only.

FROM python:3.11-slim
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY t2t_keras t2t_keras
COPY problems problems
COPY hparams hparams
COPY plugins plugins
# Only the dependencies of serving.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ctranslate2 sentencepiece rich \
        'prometheus-client<1' 'starlette<2' 'uvicorn<1' uvloop \
    && pip install --no-cache-dir --no-deps .

ENV HOME=/tmp
USER 1000
WORKDIR /models
EXPOSE 8501
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8501/health')"]
ENTRYPOINT ["t2t", "serve", "--host", "0.0.0.0", "--port", "8501"]
