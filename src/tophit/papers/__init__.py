"""The five papers' tables and figures by name: trained again, each number beside the paper's own."""
