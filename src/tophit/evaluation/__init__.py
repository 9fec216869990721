"""Evaluation: exact retrieval metrics, clustering, spread, curves, intervals and tests, on arrays and tensors only."""

from tophit.evaluation.calibration import Calibration, calibrate
from tophit.evaluation.changes import WonAndLost, rank_changes, won_and_lost
from tophit.evaluation.clustering import class_spread, clustering_metrics, nmi, pairwise_f1
from tophit.evaluation.confidence import PairedDifference, bootstrap_intervals, paired_difference
from tophit.evaluation.curves import PairCurves, pair_curves
from tophit.evaluation.graded import graded_metrics
from tophit.evaluation.protocols import vehicle_id_metrics
from tophit.evaluation.rank_metrics import Metric, parse_metric
from tophit.evaluation.relevance import Relevance
from tophit.evaluation.relevant import RankedQueries
from tophit.evaluation.retrieval import RetrievalMetrics, retrieval_metrics
from tophit.evaluation.worst import WorstQueries, worst_queries

__all__ = [
    "Calibration",
    "Metric",
    "PairCurves",
    "PairedDifference",
    "RankedQueries",
    "Relevance",
    "RetrievalMetrics",
    "WonAndLost",
    "WorstQueries",
    "bootstrap_intervals",
    "calibrate",
    "class_spread",
    "clustering_metrics",
    "graded_metrics",
    "nmi",
    "pair_curves",
    "paired_difference",
    "pairwise_f1",
    "parse_metric",
    "rank_changes",
    "retrieval_metrics",
    "vehicle_id_metrics",
    "won_and_lost",
    "worst_queries",
]
