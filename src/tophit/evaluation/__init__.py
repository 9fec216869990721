"""Evaluation: exact retrieval metrics, clustering, spread, curves, intervals and tests, on arrays and tensors only."""

from typing import TYPE_CHECKING

from tophit.lazy import on_first_use

if TYPE_CHECKING:
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

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Calibration": "tophit.evaluation.calibration",
        "calibrate": "tophit.evaluation.calibration",
        "WonAndLost": "tophit.evaluation.changes",
        "rank_changes": "tophit.evaluation.changes",
        "won_and_lost": "tophit.evaluation.changes",
        "class_spread": "tophit.evaluation.clustering",
        "clustering_metrics": "tophit.evaluation.clustering",
        "nmi": "tophit.evaluation.clustering",
        "pairwise_f1": "tophit.evaluation.clustering",
        "PairedDifference": "tophit.evaluation.confidence",
        "bootstrap_intervals": "tophit.evaluation.confidence",
        "paired_difference": "tophit.evaluation.confidence",
        "PairCurves": "tophit.evaluation.curves",
        "pair_curves": "tophit.evaluation.curves",
        "graded_metrics": "tophit.evaluation.graded",
        "vehicle_id_metrics": "tophit.evaluation.protocols",
        "Metric": "tophit.evaluation.rank_metrics",
        "parse_metric": "tophit.evaluation.rank_metrics",
        "Relevance": "tophit.evaluation.relevance",
        "RankedQueries": "tophit.evaluation.relevant",
        "RetrievalMetrics": "tophit.evaluation.retrieval",
        "retrieval_metrics": "tophit.evaluation.retrieval",
        "WorstQueries": "tophit.evaluation.worst",
        "worst_queries": "tophit.evaluation.worst",
    },
)
