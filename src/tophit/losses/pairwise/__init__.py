"""Pair losses: distances of pairs and triplets, as in the PROFS paper. Each takes chosen pairs or triplets."""

from tophit.losses.pairwise.contrastive import ContrastiveLoss
from tophit.losses.pairwise.lifted import LiftedStructureLoss
from tophit.losses.pairwise.margin import MarginLoss
from tophit.losses.pairwise.npair import AngularLoss, NPairLoss
from tophit.losses.pairwise.triplet import TripletLoss

__all__ = ["AngularLoss", "ContrastiveLoss", "LiftedStructureLoss", "MarginLoss", "NPairLoss", "TripletLoss"]
