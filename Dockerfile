# `tfm serve` on processors, without CUDA. docs/serving.md says how to build and run it.
# The base image is given by its digest, as --build-arg PYTHON_IMAGE=python:3.11-slim-bookworm@sha256:…; the address of a
# tag can be made to lead to another image, that of a digest cannot.
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE} AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY configs configs
COPY transformer_cli transformer_cli
# Each command asks one index, so that no package of the one can take the place of one of the other. The index for
# processors has a torch of 200 MB; that of PyPI brings some GB of CUDA.
RUN python -m venv /opt/tfm \
    && grep '^torch==' constraints.txt > torch.txt \
    && /opt/tfm/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps \
        --index-url https://download.pytorch.org/whl/cpu --requirement torch.txt \
    && /opt/tfm/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt '.[serve]'

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/tfm /opt/tfm
# The cache holds what is converted for CTranslate2 once: models are mounted read-only.
RUN useradd --system --uid 10001 --no-create-home tfm && install -d -o tfm /var/cache/tfm
ENV PATH=/opt/tfm/bin:$PATH XDG_CACHE_HOME=/var/cache
USER 10001
WORKDIR /models
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/ready', timeout=4)"]
ENTRYPOINT ["tfm", "serve", "--host", "0.0.0.0", "--port", "8080"]
CMD ["--checkpoint", "/models/model.safetensors"]
