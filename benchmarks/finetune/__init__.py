"""Fine-tuning: what training the last stages from a cache costs and gains, against a head and the whole network."""
