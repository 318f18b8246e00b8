"""Reweighters: the advantages of single tokens, changed by what a teacher thinks of them."""
