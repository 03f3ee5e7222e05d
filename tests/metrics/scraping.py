"""Reads the text of metrics back into samples."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

Samples = dict[str, float]  # by name and labels, as they stand in the text


def scraped(text: str) -> Samples:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {named(sample.name, **sample.labels): sample.value for sample in samples}


def collected(collector: Collector) -> Samples:
    registry = CollectorRegistry()
    registry.register(collector)
    return scraped(generate_latest(registry).decode())


def named(name: str, **labels: str) -> str:
    return name + "".join(f" {label}={value}" for label, value in sorted(labels.items()))
