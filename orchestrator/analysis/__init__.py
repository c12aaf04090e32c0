"""From runs to statements. Pure: runs in, numbers and sentences out."""
