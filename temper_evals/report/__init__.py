"""Shows results: `table` in words, `plots` as pictures, `page` as one file of HTML, `comparison`.

Help, harm, cost and ceiling always stand together.
"""
