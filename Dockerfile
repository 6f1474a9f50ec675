# `tfm serve` on processors, without CUDA: docker build -t tfm-serve .   docs/serving.md says how to run it.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY configs configs
COPY transformer_cli transformer_cli
# The CPU index has a torch of 200 MB; that of PyPI brings some GB of CUDA.
RUN python -m venv /opt/tfm \
    && /opt/tfm/bin/pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt \
        --extra-index-url https://download.pytorch.org/whl/cpu '.[serve]'

FROM python:3.11-slim-bookworm
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
