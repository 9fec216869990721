"""The parts of THSG: its equations, and the networks, triplets, threshold, buffer and check that they work with."""
