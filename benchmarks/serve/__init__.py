"""What HTTP adds to a search, and how a server bears a long load."""
