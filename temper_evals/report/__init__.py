"""Shows results: `table` in words, `terminal` where somebody reads them, `plots` as pictures, `page` as
one file of HTML, `comparison` of two evaluations.

Help, harm, cost and ceiling always stand together.
"""
