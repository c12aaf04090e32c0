"""The phone's shell, a subset of mksh: lexer, parser, word expansion and interpreter."""
