"""A phone made of AOSP's own adbd, mksh and toybox, which are not parts of this project."""
