"""What `/metrics` shows, in the format of Prometheus. No label holds anything that a client sent."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from transformer_cli.addons.serving.models import ModelTable, ServedModel
from transformer_cli.decoding.batch_queue import BatchReport
from transformer_cli.decoding.records import quality_flags
from transformer_cli.decoding.results import Translated
from transformer_cli.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
FILL = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Metrics:
    """Counted since the process began."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, help: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(name, help, labels, registry=registry)

        def histogram(name: str, help: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Histogram:
            return Histogram(name, help, labels, buckets=buckets, registry=registry)

        self.requests = counter("tfm_requests", "Requests, by route and status.", ("endpoint", "status"))
        self.request_seconds = histogram(
            "tfm_request_seconds", "From a request's head to the end of its answer.", SECONDS, ("endpoint",)
        )
        self.requests_active = Gauge("tfm_requests_active", "Requests that are worked on.", registry=registry)
        self.connections = Gauge("tfm_connections", "Open connections.", registry=registry)
        self.queue_depth = Gauge("tfm_queue_depth", "Sentences that wait for an engine.", registry=registry)
        self.queue_wait = histogram(
            "tfm_queue_wait_seconds", "Time that the oldest sentence of a batch has waited.", SECONDS, ("model",)
        )
        self.batch_sentences = histogram("tfm_batch_sentences", "Sentences of a batch.", SENTENCES, ("model",))
        self.batch_fill = histogram(
            "tfm_batch_fill", "Padded tokens of a batch, as a share of those that it may have.", FILL, ("model",)
        )
        self.engine_seconds = histogram("tfm_engine_seconds", "Time that a batch took.", SECONDS, ("model",))
        self.source_tokens = counter("tfm_source_tokens", "Source tokens translated by an engine.", ("model",))
        self.target_tokens = counter("tfm_target_tokens", "Tokens of translations, those of the cache too.", ("model",))
        self.sentences = counter("tfm_sentences", "Sentences translated, those of the cache too.", ("model",))
        self.characters = counter("tfm_characters", "Characters of the texts that were translated.")
        self.cache_hits = counter("tfm_cache_hits", "Sentences whose translation was in the cache.")
        self.truncated = counter("tfm_truncated", "Lines of which only the first tokens were translated.", ("model",))
        self.flags = counter("tfm_flags", "Translations with a quality flag.", ("model", "flag"))

    def batch(self, model: ServedModel, report: BatchReport) -> None:
        name = model.name
        self.queue_wait.labels(name).observe(max(0.0, report.waited))
        self.batch_sentences.labels(name).observe(report.n_sentences)
        self.batch_fill.labels(name).observe(report.n_padded / report.most)
        self.engine_seconds.labels(name).observe(report.seconds)
        self.source_tokens.labels(name).inc(report.n_tokens)

    def results(self, model: ServedModel, results: Sequence[Translated]) -> None:
        name = model.name
        self.sentences.labels(name).inc(sum(result.n_parts for result in results))
        self.target_tokens.labels(name).inc(sum(result.candidates[0].n_tokens for result in results))
        self.truncated.labels(name).inc(sum(result.cut for result in results))
        for result in results:
            for flag, is_set in quality_flags(result).items():
                if is_set:
                    self.flags.labels(name, flag).inc()

    def watch(self, table: ModelTable, n_connections: Callable[[], int]) -> None:
        """Read these whenever the metrics are asked for."""
        self.queue_depth.set_function(lambda: sum(model.n_waiting for model in table.models))
        self.connections.set_function(n_connections)
        self.registry.register(_Models(table))

    def page(self) -> bytes:
        return generate_latest(self.registry)


class _Models(Collector):
    """The models as they are now: a reload changes their hashes."""

    def __init__(self, table: ModelTable) -> None:
        self.table = table

    def collect(self) -> Iterator[Metric]:
        info = InfoMetricFamily("tfm_model", "Models that are served.", labels=("name", "source", "target"))
        for model in self.table.models:
            value = {"sha256": model.sha256, "engine": model.engine, "version": __version__}
            info.add_metric((model.name, model.source_lang, model.target_lang), value)
        yield info
        yield CounterMetricFamily("tfm_reloads", "Replaced files that were read again.", self.table.n_reloads)
        yield CounterMetricFamily(
            "tfm_reload_failures", "Replaced files that cannot be used.", self.table.n_reload_failures
        )
