"""The models of the studies, one family per file, each as its study ran it."""
