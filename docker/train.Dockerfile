# Every command of `t2t`, on GPUs:
#
#   docker build -f docker/train.Dockerfile -t t2t_keras:train .
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/work" t2t_keras:train \
#       train --problem translate_ende --hparams_set base --data_dir data --output_dir runs/base
#
# For machines without a GPU, without the libraries of CUDA: --build-arg EXTRAS=data

FROM python:3.11-slim
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY t2t_keras t2t_keras
COPY problems problems
COPY hparams hparams
COPY plugins plugins
ARG EXTRAS=data,gpu
# The versions are those of pyproject.toml.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[$EXTRAS]"

# Where the user that --user names has no home, libraries write their caches to /tmp.
ENV HOME=/tmp
USER 1000
WORKDIR /work
ENTRYPOINT ["t2t"]
