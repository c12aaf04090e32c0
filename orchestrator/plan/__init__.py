"""From a sweep file to runs in order. Pure: text and values in, values out."""
