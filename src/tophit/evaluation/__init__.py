"""Evaluation: exact retrieval metrics with intervals. It knows only arrays."""

from tophit.evaluation.retrieval import RetrievalMetrics, retrieval_metrics

__all__ = ["RetrievalMetrics", "retrieval_metrics"]
