"""The five papers' tables and figures by name: trained anew, each number beside the paper's own."""
