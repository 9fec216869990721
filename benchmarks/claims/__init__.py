"""The five papers' claims, tested on data that can be run here."""
