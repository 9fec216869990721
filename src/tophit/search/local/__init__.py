"""The local backend: a folder with FAISS segments, a SQLite file and a snapshot that names them."""
