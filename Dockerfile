# syntax=docker/dockerfile:1
#
#   docker build --build-arg USER_UID=$(id -u) -t autotune .
#   docker run --rm --gpus all --shm-size 8g --init -v "$PWD":/project autotune search train.py
#
# By Docker 23 or newer on Linux 5.13 or newer, Landlock then keeps the user's files from what trials write.
#
# BASE is any GPU image with Python 3.11 or newer and torch 2.4 or newer. The driver of the host decides which CUDA it may
# have: CUDA 13 needs driver 580 or newer; for an older one, for instance,
#   --build-arg BASE=pytorch/pytorch:2.9.1-cuda12.6-cudnn9-runtime
ARG BASE=pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime
FROM ${BASE}

# We install into the image's own Python, where its torch is. Newer base images mark that Python as managed by Debian,
# and pip would refuse; older pips ignore the variable.
ENV PIP_BREAK_SYSTEM_PACKAGES=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

WORKDIR /opt/autotune
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY autotune ./autotune

# The image's torch is pinned to what it is: pip stops with an error rather than replace it, and an image without torch
# ends the build here. Of our own constraints only those hold whose package the image lacks; what it has stays, unless
# it is too old for us.
RUN python3 -m pip list --format=freeze > base.txt \
    && grep -i '^torch==' base.txt > image.txt \
    && grep -v -i -E "^($(cut -d= -f1 base.txt | paste -s -d '|' -))==" constraints.txt >> image.txt
RUN python3 -m pip install --constraint image.txt '.[service,postgresql]'

# Not root. The uid may already have a name in the base image; files that a search writes should be the caller's.
ARG USER_UID=1000
RUN useradd --non-unique --uid "${USER_UID}" --create-home autotune \
    && mkdir -p /project/studies /state /tokens \
    && chown -R "${USER_UID}" /project /state /tokens
USER autotune

# The user's project goes to /project; the study database lies in studies/ under it and outlives the container.
WORKDIR /project
VOLUME /project/studies
ENTRYPOINT ["autotune"]
CMD ["--help"]
