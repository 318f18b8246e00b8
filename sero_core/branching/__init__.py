"""The stages of SERO's branches: roots, execution, thoughts, scoring, controls.

`sero_core.branch.Brancher` runs them one after the other; each stage is a function of the one
before, so that every branch of an iteration is executed, rendered and scored in one go.
"""
