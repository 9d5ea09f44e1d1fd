"""One adapter for each peer, run by the Python of the environment it is installed in; none of them imports regard."""
