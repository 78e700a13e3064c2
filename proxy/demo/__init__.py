"""`temper demo`: a model whose answers are written by hand, and what becomes of them."""
