"""Models of the studies, one family a file, each as its study ran it."""
