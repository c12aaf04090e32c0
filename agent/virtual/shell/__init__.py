"""The phone's shell: text to tree, words to fields, tree to effects."""
