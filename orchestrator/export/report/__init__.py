"""The report page: what a sweep says, drawn. Pictures are SVG of our own, made here, once."""
