"""Evaluation: exact retrieval metrics, clustering, spread, curves, intervals and tests. It knows only arrays."""

from tophit.evaluation.clustering import clustering_metrics, nmi, pairwise_f1
from tophit.evaluation.confidence import PairedDifference, bootstrap_intervals, paired_difference
from tophit.evaluation.curves import PairCurves, pair_curves
from tophit.evaluation.protocols import vehicle_id_metrics
from tophit.evaluation.retrieval import RetrievalMetrics, retrieval_metrics
from tophit.evaluation.spread import class_spread
from tophit.evaluation.worst import WorstQueries, worst_queries

__all__ = [
    "PairCurves",
    "PairedDifference",
    "RetrievalMetrics",
    "WorstQueries",
    "bootstrap_intervals",
    "class_spread",
    "clustering_metrics",
    "nmi",
    "pair_curves",
    "paired_difference",
    "pairwise_f1",
    "retrieval_metrics",
    "vehicle_id_metrics",
    "worst_queries",
]
